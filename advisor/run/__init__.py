"""Plans on this machine: start, watch and validate them, log them, and find what disturbs them."""
