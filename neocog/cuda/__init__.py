"""The engine on CUDA devices."""
