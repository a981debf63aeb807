"""From a picture to its text.

`reader.Reader` decodes a picture, finds its digits and recognises them; `policy` rejects the
doubtful, `records` are what comes of it, `formats` are what records are written in.
"""
