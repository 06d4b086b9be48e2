"""Shell lines that say which GPU a script is for, and stop it where that is not whole."""

from collections.abc import Iterator

_WHOLE = r"""
mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current --format=csv,noheader 2> /dev/null) || :
[ "$mode" != Enabled ] || {
  echo "GPU $GPU is in MIG mode: jobs planned for all of it would share its first instance. While" \
    "nothing runs there: sudo nvidia-smi -i $GPU -mig 0. Or choose a plan of MIG instances" >&2
  exit 1
}
"""


def which_gpu(device: int | str | None) -> Iterator[str]:
    """Lines that set ``GPU``, and have CUDA count GPUs by their places on the bus, as nvidia-smi.

    Args:
        device: Index or UUID; None: what the caller's variable ``GPU`` says, or else the first.
    """
    own = "${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them"
    yield f"GPU={own if device is None else device}"
    yield "export CUDA_DEVICE_ORDER=PCI_BUS_ID"


def whole_wanted() -> list[str]:
    """Lines that stop a script for a whole GPU where that is in MIG mode."""
    return _WHOLE.strip().splitlines()
