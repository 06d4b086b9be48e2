"""What groups of jobs come to on one GPU: roughly for thousands, foretold for a few."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.gpu.catalogue import Gpu
from advisor.planning.fleet.columns import Column, Kinds, Team
from advisor.planning.objectives import throughput
from advisor.planning.plan import Objective
from advisor.planning.rules import Rule, first_broken
from advisor.planning.solver.one_gpu import Solved
from advisor.prediction.distilled import Crowds
from advisor.prediction.quick import Quick
from advisor.prediction.script import Floats
from advisor.sharing import Mps, Naive
from advisor.simulation.energy import Level

_ROUGH: dict[str, Naive | Mps] = {"naive": Naive(), "mps": Mps()}
Teams = NDArray[np.intp]
"""Kinds of teams of one size, shape (teams, jobs)."""

# Share of a job's work below which it is done.
_DUST = 1e-9


class SolvesOneGpu(Protocol):
    """Whatever names the best plan of some jobs on one GPU: `OneGpu` does."""

    def best(self, chosen: Sequence[int]) -> Solved | None: ...


class Foretold:
    """Columns by the one-GPU solver.

    Args:
        kinds: Of jobs.
        solver: Of all jobs of `kinds`.
        aim: Of a throughput, jobs are taken to be equally long alone.
        level: What counts of times and joules: medians, or upper ends.
    """

    def __init__(
        self, kinds: Kinds, solver: SolvesOneGpu, aim: Objective, level: Level = "p50"
    ) -> None:
        self._kinds, self._solver, self._aim, self._level = kinds, solver, aim, level

    def column(self, team: Team) -> Column | None:
        """The best of `team`; None where nothing that is allowed fits."""
        left = [list(each) for each in self._kinds.positions]
        positions = sorted((left[kind].pop(0), kind) for kind in team)
        solved = self._solver.best([position for position, _ in positions])
        if solved is None:
            return None
        forecast = solved.forecast
        if self._aim == "throughput" or forecast.ends_s is None:
            takes = len(team) / throughput(forecast.prediction, self._level)
            ends_s = (takes,) * len(team)
        else:
            ends_s = tuple(getattr(end_s, self._level) for end_s in forecast.ends_s)
        return Column(
            team=tuple(kind for _, kind in positions), sharing=solved.setup.sharing,
            ends_s=ends_s, foretold=True, batches=solved.setup.batches,
            energy_j=getattr(forecast.energy_j, self._level, None),
        )  # fmt: skip


class Rough:
    """Columns by the distilled predictor, time-sliced and under MPS: medians, for screening only.

    Args:
        kinds: Of jobs.
        quick: Of one job of each kind.
        gpu: Whose memory they share.
        forbidding: Rules of what they may not do.
        aim: As of `Foretold`.
    """

    def __init__(
        self, kinds: Kinds, quick: Quick, gpu: Gpu, forbidding: Sequence[Rule], aim: Objective
    ) -> None:
        self._kinds, self._quick, self._gpu = kinds, quick, gpu
        self._forbidding, self._aim = forbidding, aim
        profiles = [job.profile for job in kinds.jobs]
        memories = [each.memory for each in profiles]
        self._held_mib = np.array([each.device_mib or each.reserved_mib for each in memories])
        self._power_w = np.array([each.power_w or 0.0 for each in profiles])
        self._idle_w = max((each.idle_power_w or 0.0 for each in profiles), default=0.0)
        work = [job.work_steps or 0.0 for job in kinds.jobs]
        self._work = np.array(work) if aim != "throughput" else 1 / quick.jobs.step_s

    def columns(self, teams: Sequence[Team]) -> Iterator[Column]:
        """The best of each of `teams` that seems to fit; of one size after the other."""
        by_size = sorted(teams, key=len)
        for _, same in groupby(by_size, len):
            fitting = np.array([team for team in same if self._fits(team)])
            if len(fitting):
                yield from self._best(fitting)

    def _fits(self, team: Team) -> bool:
        return float(self._held_mib[list(team)].sum()) <= self._gpu.usable_mib

    def _best(self, teams: Teams) -> Iterator[Column]:
        modes = [mode for mode in _ROUGH if mode in self._quick.distilled.surrogates]
        ends = {mode: self._ends_s(teams, mode) for mode in modes}
        for row, team in enumerate(teams):
            jobs = self._kinds.of(tuple(team))
            allowed = [mode for mode in modes
                       if first_broken(self._forbidding, jobs, _ROUGH[mode]) is None]  # fmt: skip
            if allowed:
                mode = min(allowed, key=lambda each: float(ends[each][row].max()))
                yield self._column(tuple(map(int, team)), mode, ends[mode][row])

    def _column(self, team: Team, mode: str, ends_s: Floats) -> Column:
        above_idle_w = self._power_w[list(team)] - self._idle_w
        power_w = self._idle_w + above_idle_w.sum()
        limit_w = self._gpu.power_limit_w or np.inf
        return Column(
            team=team, sharing=_ROUGH[mode], ends_s=tuple(map(float, ends_s)), foretold=False,
            energy_j=float(min(power_w, limit_w) * ends_s.max()),
        )  # fmt: skip

    def _ends_s(self, teams: Teams, mode: str) -> Floats:
        """When each job ends, if all of a team start at once, shape (teams, jobs)."""
        if self._aim == "throughput":
            steps_s = self._steps_s(teams, mode)
            takes = teams.shape[1] / (self._quick.jobs.step_s[teams] / steps_s).sum(axis=1)
            return np.repeat(takes[:, None], teams.shape[1], axis=1)
        work = self._work[teams]
        left, now_s, ends_s = work.copy(), np.zeros(len(teams)), np.zeros(teams.shape)
        while (at := np.flatnonzero((left > 0).any(axis=1))).size:
            running = left[at] > 0
            steps_s = self._steps_s(np.where(running, teams[at], -1), mode)
            takes_s = np.nanmin(np.where(running, left[at] * steps_s, np.nan), axis=1)
            now_s[at] += takes_s
            remains = np.where(running, left[at] - takes_s[:, None] / steps_s, 0.0)
            left[at] = np.where(remains > _DUST * work[at], remains, 0.0)
            ends_s[at] = np.where(running & (left[at] == 0), now_s[at, None], ends_s[at])
        return ends_s

    def _steps_s(self, teams: Teams, mode: str) -> Floats:
        limits = np.full(teams.shape, 100.0)
        return self._quick.distilled.steps(self._quick.jobs, Crowds(teams, limits), mode)
