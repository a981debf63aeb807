"""Reading from a camera."""
