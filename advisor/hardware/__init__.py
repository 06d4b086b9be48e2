"""What GPUs there are, what is at hand, and what parts of a GPU jobs can have."""

DEFAULT_GPU = "h200-141gb"
"""The GPU of the first shipped data: what is asked about where nothing says which."""
