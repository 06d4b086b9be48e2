"""Joules of GPUs over time, from the power of each mix."""

from collections.abc import Callable, Sequence
from math import fsum
from statistics import median
from typing import Literal

from advisor.prediction.answer import Interval
from advisor.simulation.loop import History, Seats
from advisor.workload.profile import Profile

Level = Literal["p05", "p50", "p95"]
LEVELS: tuple[Level, ...] = ("p05", "p50", "p95")
"""What every time and power is simulated at: the errors of all jobs go the same way."""

# Less time than this without a job is rounding, as a share of all time.
_DUST = 1e-9


def around(values: Sequence[float]) -> Interval:
    """The interval of what came of each of `LEVELS`.

    Where jobs queue, slower steps may let the last one end sooner: others start elsewhere.
    """
    return Interval(min(values), values[LEVELS.index("p50")], max(values))


def idle_power_w(profiles: Sequence[Profile]) -> float | None:
    """What a GPU draws on which nothing runs: the median; None: not measured."""
    measured = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    return median(measured) if measured else None


def energy_j(
    histories: Sequence[History],
    power_w: Callable[[Seats], Interval | None],
    idle_w: float | None,
    gpus: int = 1,
) -> Interval | None:
    """Joules of all GPUs until the last job ends; None where a power that it takes is missing.

    Args:
        histories: One for each of `LEVELS`.
        power_w: Of a GPU while these jobs run on it.
        idle_w: While none does.
        gpus: How many there are.
    """
    totals = []
    for level, history in zip(LEVELS, histories, strict=True):
        powers = [power_w(each.seats) for each in history.stretches]
        known = [getattr(each, level) for each in powers if each is not None]
        held_s = gpus * history.makespan_s
        free_s = held_s - fsum(each.seconds for each in history.stretches)
        idle_j = 0.0 if free_s < _DUST * held_s else None if idle_w is None else free_s * idle_w
        if len(known) < len(powers) or idle_j is None:
            return None
        busy_j = (p * each.seconds for p, each in zip(known, history.stretches, strict=True))
        totals.append(fsum(busy_j) + idle_j)
    return around(totals)
