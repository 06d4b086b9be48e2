"""Tells how long each part of a profile takes."""

from time import monotonic
from typing import Literal

from advisor.workload.profile import PartSeconds

Part = Literal[
    "start_s", "settle_s", "windows_s", "host_path_s", "trace_s", "mps_s", "limits_s"
]  # fmt: skip


class Stopwatch:
    """Every second from its making to the last lap belongs to one part."""

    def __init__(self) -> None:
        self._since_s = monotonic()
        self._parts: dict[str, float] = {}

    def lap(self, part: Part) -> None:
        """What passed since the last lap was spent on `part`, which may have had some before."""
        now_s = monotonic()
        self._parts[part] = self._parts.get(part, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def took(self, meter_s: float) -> PartSeconds:
        """All laps; of those of the windows `meter_s` were spent on asking the driver."""
        return PartSeconds(**self._parts, meter_s=meter_s)
