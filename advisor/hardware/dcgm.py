"""Activity of SMs, tensor cores and DRAM by DCGM, for GPUs without NVML's GPM: those before Hopper.

DCGM's host engine, `nv-hostengine`, counts; `dcgmi` asks it. Both belong to NVIDIA's package
`datacenter-gpu-manager`. DCGM counts on data-centre GPUs from Volta on; where it does not, or runs
not, or leaves its counters to administrators, nothing here is known.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from shutil import which
from signal import SIGINT
from statistics import fmean

# DCGM's field identifiers, DCGM_FI_PROF_*; each a share, 0..1.
FIELDS = {
    "gract": 1001,  # GR_ENGINE_ACTIVE
    "sm_active": 1002,
    "sm_occupancy": 1003,
    "tensor_active": 1004,  # PIPE_TENSOR_ACTIVE
    "dram_active": 1005,
}
_PROGRAM = "dcgmi"
_DELAY_MS = 100
# A row is the mean since the row before: the first begins before the window. Of one row more, a
# mean could be that of a moment.
_UNSURE_ROWS, _FEWEST_ROWS = 1, 2
_PATIENCE_S = 5.0
_PIPE_BYTES = 2**20  # holds what is printed in twenty minutes; after that `dcgmi` waits

_SHARE = re.compile(r"\d+\.\d+")
_NUMBER = re.compile(r"\|\s*(\d+)\s*\|")
_UUID = re.compile(r"Device UUID:\s*(\S+)")


@cache  # a process asks at each look at the GPU
def dcgm_number(uuid: str) -> int | None:
    """The number by which DCGM knows the GPU with this UUID; None where DCGM does not answer."""
    if which(_PROGRAM) is None:
        return None
    try:
        found = subprocess.run(
            [_PROGRAM, "discovery", "--list"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _listed(found.stdout).get(uuid)


def _listed(table: str) -> dict[str, int]:
    """Numbers of GPUs by UUID, from what `dcgmi discovery --list` prints."""
    numbers: dict[str, int] = {}
    number = None
    for line in table.splitlines():
        if begun := _NUMBER.match(line):
            number = int(begun[1])
        if number is not None and (told := _UUID.search(line)):
            numbers[told[1]] = number
    return numbers


@dataclass(frozen=True, slots=True)
class DcgmWatch:
    """A window of time in which DCGM counts what one whole GPU does; see `dcgm_watch`."""

    _dcgmi: subprocess.Popen[str]

    def end(self) -> dict[str, float]:
        """Mean share of each of `FIELDS` since the window began, 0..1; those that were counted."""
        self._dcgmi.send_signal(SIGINT)  # as for Ctrl-C, it prints what it still holds
        try:
            printed, _ = self._dcgmi.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._dcgmi.kill()
            self._dcgmi.communicate()
            return {}
        return dict(_means(printed))


def dcgm_watch(uuid: str) -> DcgmWatch | None:
    """Let DCGM count on the GPU with this UUID, until `DcgmWatch.end`; None where it does not.

    If this process dies meanwhile, `dcgmi` ends by itself, since nobody reads what it prints.
    """
    number = dcgm_number(uuid)
    if number is None:
        return None
    fields = ",".join(map(str, FIELDS.values()))
    command = [_PROGRAM, "dmon", "-e", fields, "-i", str(number), "-d", str(_DELAY_MS)]
    try:
        return DcgmWatch(subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, errors="replace", pipesize=_PIPE_BYTES,
        ))  # fmt: skip
    except OSError:
        return None


def _means(printed: str) -> Mapping[str, float]:
    """Of each field with rows enough, from what `dcgmi dmon` prints: a row of shares, or N/A."""
    rows = [line.split()[2:] for line in printed.splitlines() if line.startswith("GPU ")]
    whole = [row for row in rows if len(row) == len(FIELDS)]
    counted = {
        name: [min(1.0, float(row[column])) for row in whole if _SHARE.fullmatch(row[column])]
        for column, name in enumerate(FIELDS)
    }
    return {
        name: fmean(shares[_UNSURE_ROWS:])
        for name, shares in counted.items()
        if len(shares) >= _UNSURE_ROWS + _FEWEST_ROWS
    }
