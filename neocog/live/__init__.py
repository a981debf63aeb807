"""Reading numbers that are held before a camera, or shown by a video or a stream."""
