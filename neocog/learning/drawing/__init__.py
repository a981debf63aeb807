"""Drawing what is learned from: hands, what they write, lines of it, and the camera before them."""
