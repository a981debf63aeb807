"""Made pages that the finder learns from, drawn on the fly: endless, seeded, NumPy and OpenCV."""
