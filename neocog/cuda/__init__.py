"""The network, the line reader and the finder on a CUDA device."""
