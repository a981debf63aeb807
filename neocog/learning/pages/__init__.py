"""Made pages: handwriting under hard conditions, drawn from single digits."""
