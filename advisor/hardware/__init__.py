"""GPU models, the GPUs of this machine, and the parts of a GPU that jobs can have."""

import os

DEFAULT_GPU = "h200-141gb"
"""The GPU of the first shipped data, for questions that name none."""

DEFAULT_DEVICE = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip() or "0"
"""The first GPU that this process may use, as far as it is confined to some."""
