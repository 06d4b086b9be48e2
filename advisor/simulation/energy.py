"""Joules of GPUs over a simulation, idle ones included."""

from collections.abc import Callable, Sequence

from advisor.prediction.prediction import LEVELS, Interval, Level, all_known, around
from advisor.simulation.events import History, PlacedJobs

PowerOfMix = Callable[[PlacedJobs, int], Interval | None]
"""The jobs on a GPU, and the GPUs of its host that run jobs -> its power; None: not measured."""

# Gaps without jobs below this share of all time are rounding.
_DUST = 1e-9


class EnergySum:
    """The joules of stretches at one level, added up as they end.

    Attributes:
        busy_s: Seconds in which each GPU runs jobs, shape (GPUs,).
    """

    def __init__(self, level: Level, power_w: PowerOfMix, gpus: int) -> None:
        self._level: Level = level
        self._power_w = power_w
        self._joules: float | None = 0.0
        self.busy_s = [0.0] * gpus

    def add(
        self, gpu: int, start_s: float, end_s: float, seats: PlacedJobs, busy_gpus: int
    ) -> None:
        self.busy_s[gpu] += end_s - start_s
        power = None if self._joules is None else self._power_w(seats, busy_gpus)
        if self._joules is None or power is None:
            self._joules = None
        else:
            self._joules += power.at(self._level) * (end_s - start_s)

    def total_j(self, idle_w: Sequence[float | None], makespan_s: float) -> float | None:
        """Return the joules of all GPUs until then; `idle_w` is the power of each without jobs."""
        total = self._joules
        for busy_s, watts in zip(self.busy_s, idle_w, strict=True):
            if (free_s := makespan_s - busy_s) >= _DUST * makespan_s:
                total = None if total is None or watts is None else total + free_s * watts
        return total


def energy_j(
    histories: Sequence[History], power_w: PowerOfMix, idle_w: Sequence[float | None]
) -> Interval | None:
    """Compute joules until the last job ends, by histories at `LEVELS`; None: not measured."""
    totals = []
    for level, history in zip(LEVELS, histories, strict=True):
        energy = EnergySum(level, power_w, len(idle_w))
        for each in history.stretches:
            energy.add(each.gpu, each.start_s, each.end_s, each.seats, each.busy_gpus)
        totals.append(energy.total_j(idle_w, history.makespan_s))
    joules = all_known(totals)
    return None if joules is None else around(joules)
