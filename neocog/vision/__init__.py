"""Pictures: decoding them, finding the digits on them, bringing each to the network's size."""
