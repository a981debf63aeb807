"""The network: its specification, its equations, the engines that compute it, its model files."""
