"""Fits the constants of replay, common to all GPUs or of a single GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from zlib import crc32

from advisor.prediction.fit.observation import ObservedRun
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.physics import Physics
from advisor.prediction.replay import TimeSlicing
from advisor.sharing import Mode

# As two calibrations of an H200 and one of an H100 timed them: 2.00 to 2.07 ms, and 0.22 to 0.23 ms
# for each change. Steps of runs depend on little but the share of the one in the other.
_SLICE_S = 2e-3
# Where the constants are looked for; the best lay inside for the first runs on an H200.
_PATIENCES_S = (0.005e-3, 0.01e-3, 0.02e-3)
_SWITCHES_S = (0.18e-3, 0.2e-3, 0.21e-3, 0.22e-3, 0.24e-3)
_PACKINGS = (0.3, 0.45, 0.6)
_CEDED = (0.0, 0.03, 0.05, 0.08)
_BANDWIDTHS = (0.2, 0.35, 0.5, 0.65)
_START = Physics(
    packing=0.45,
    slicing=TimeSlicing(slice_s=_SLICE_S, patience_s=0.01e-3, switch_s=0.2e-3),
    ceded=0.05,
    bandwidth=0.5,
)

# A GPU's own constants replace those common to all where its runs of a mode are so many, and the
# error on them so much less. Drawn runs of an H200 and an H100, 10 to 60 at a time, often chose
# constants 3 % better on them that were worse on all others, up to a tenth in the mean; the cases
# of the studies' cases on an H100 chose slices 10 % better on them and 22 % worse on 60 other runs.
_FEWEST_OF_ONE_GPU = 20
_GAIN = 0.15
# Constants are fitted to about this many runs of a mode: more take longer with the same result.
_TELLING_RUNS = 120


def physics_by_gpu(
    modes: Mapping[Mode, Sequence[ObservedRun]], playback: ReplayCache
) -> dict[str, Physics]:
    """Constants of replay for each GPU: common ones, or its own where these are clearly better.

    Args:
        modes: Runs of each mode on all GPUs.
        playback: Cached replays.
    """
    common, found = _best(_START, modes, playback, 0.0), {}
    for key in dict.fromkeys(shared.gpu.key for runs in modes.values() for shared in runs):
        own = {mode: [shared for shared in runs if shared.gpu.key == key]
               for mode, runs in modes.items()}  # fmt: skip
        enough = {mode: runs for mode, runs in own.items() if len(runs) >= _FEWEST_OF_ONE_GPU}
        found[key] = _best(common, enough, playback, _GAIN)
    return found


def _best(
    start: Physics,
    modes: Mapping[Mode, Sequence[ObservedRun]],
    playback: ReplayCache,
    gain: float,
) -> Physics:
    """The constants of replay with the least error of replay alone, mode by mode.

    Those of `start` stay where no others have an error that is less by the share `gain`.
    """
    physics = start
    slicings = [
        TimeSlicing(slice_s=_SLICE_S, patience_s=a, switch_s=b)
        for a, b in product(_PATIENCES_S, _SWITCHES_S)
    ]
    choices: dict[Mode, list[dict[str, Any]]] = {
        "naive": [{"slicing": slicing} for slicing in slicings],
        "mps": [{"packing": a, "ceded": b} for a, b in product(_PACKINGS, _CEDED)],
        "mps-limits": [{"bandwidth": bandwidth} for bandwidth in _BANDWIDTHS],
    }
    for mode, changes in choices.items():
        if runs := _some(modes.get(mode, ())):
            tried = [replace(physics, **change) for change in changes]
            errors = [playback.error(runs, each) for each in tried]
            best = errors.index(min(errors))
            if errors[best] < (1 - gain) * playback.error(runs, physics):
                physics = tried[best]
    return physics


def _some(runs: Sequence[ObservedRun]) -> list[ObservedRun]:
    """About `_TELLING_RUNS` of `runs`, mostly the same ones whatever family is left out."""
    parts = max(1, len(runs) // _TELLING_RUNS)
    return [shared for shared in runs if crc32(shared.run.id.encode()) % parts == 0]
