"""GPU models, the GPUs of this machine, and the parts of a GPU that jobs can have."""

DEFAULT_GPU = "h200-141gb"
"""The GPU of the first shipped data, for questions that name none."""
