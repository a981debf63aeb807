"""From a picture to its text.

`reader.Reader` decodes a picture, finds its digits and recognises them; `policy` rejects the
doubtful, `words` puts lines and words together, `records` are what comes of it.
"""
