"""Waits for what other processes do: for long, since how fast the machine is is no law."""

from time import monotonic, sleep

PATIENCE_S = 600
"""After so many seconds, whatever a test waits for does not come."""


def until(true):
    """Wait until `true()` holds."""
    ends_s = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < ends_s, "waited in vain"
        sleep(0.05)
