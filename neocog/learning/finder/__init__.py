"""How the finder of digits is learned: its networks, their loss, their training."""
