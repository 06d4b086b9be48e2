"""The best MPS limits: thousands of vectors are estimated, and the best of them predicted.

The surrogate model estimates how each vector fares. Of up to `MOST_ASKED` jobs, the most promising
vectors are predicted one after another, and each prediction corrects the estimates of the others.

Of more jobs, the best estimates and a few vectors that are always tried are replayed for a short
time, and the best of these are predicted. Without surrogate model, traces or counters, only those
few are tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from advisor.plan import ObjectiveName
from advisor.plan.candidate_space import MOST_ASKED
from advisor.plan.forecast import Mixes
from advisor.plan.limit_tuning import (
    EQUAL_GRID,
    count,
    different,
    distinct,
    limit_vectors,
    of_copies,
    promising,
    worth_trying,
)
from advisor.plan.objectives import OBJECTIVES, Objective
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.prediction import Level
from advisor.prediction.surrogate import LIMIT_GRID
from advisor.prediction.surrogate_predictor import SurrogatePredictor
from advisor.prediction.trace import Floats
from advisor.sharing import Mps
from advisor.simulation.events import Indices, array_ends_s

# The most vectors that are combined, and the most steps (vectors times jobs) that are estimated for
# them. The finest of `GRIDS`, in per cent, is taken that stays below both.
MOST_COMBINED, _MOST_PACES = 4096, 30_000
GRIDS = (
    LIMIT_GRID,
    (10, 20, 28, 43, 57, 71, 86, 100),
    (14, 28, 43, 71, 100),
    (14, 28, 57, 100),
    (14, 36, 100),
    (28, 100),
)
# How many of the best combined vectors are refined: each limit in turn at each of `LIMIT_GRID`.
_REFINED = 16
# Of many jobs: how many vectors, the best by the surrogate model, are replayed for a short time,
# and how many, the best by that replay, are predicted from the first step to the last.
REPLAYED, _FORECAST = 16, 3
# The same where all jobs are copies of one, which hardly gain by different limits.
_OF_COPIES = 4, 2
# The most replays of all jobs for the vectors predicted besides the best. A vector takes up to
# three for each job that differs in name or limit, or one where all limits are equal.
_MOST_REPLAYS = 21

# Of few jobs: how many vectors, the best by the surrogate model, are looked at; how many of these,
# besides equal limits, are predicted while all jobs run; and how many of those from the first step
# to the last.
_PROMISING, _TRIED, _OF_FEW = 500, 10, 5


@dataclass(frozen=True, slots=True)
class FoundLimits:
    """The vectors of limits that are worth a forecast.

    Attributes:
        sharings: MPS with these limits.
        compared: Number of vectors that were compared to find them.
    """

    sharings: tuple[Mps, ...]
    compared: int


def best_limits(mixes: Mixes, objective: ObjectiveName, level: Level = "p50") -> FoundLimits:
    """MPS with the limits that are best by `objective`, judged at `level`."""
    usual = limit_vectors([job.profile for job in mixes.jobs])
    search = _search(mixes, objective, usual)
    if search is None:
        return FoundLimits(tuple(usual), len(usual))
    if len(mixes.jobs) <= MOST_ASKED:
        return search.tuned(usual, level)
    vectors, costs = search.compared()
    replayed, most = (REPLAYED, _FORECAST) if len(mixes.copies()) > 1 else _OF_COPIES
    best = vectors[np.argsort(costs, kind="stable")[:replayed]]
    sharings = different(
        [*usual, *(Mps(tuple(map(float, row))) for row in best)], search.surrogate.answers.gpu
    )
    ordered = search.replayed(sharings)
    names = [job.name for job in mixes.jobs]
    # The rough answer's as well: a short replay may pass over it, and nothing worse may follow it.
    found = different(
        [*kept(ordered, names, most), search.estimated()], search.surrogate.answers.gpu
    )
    return FoundLimits(tuple(found), len(vectors) + len(usual))


def estimated_limits(mixes: Mixes, objective: ObjectiveName) -> FoundLimits:
    """As `best_limits`, by the estimates of the surrogate model alone: one at most."""
    search = _search(mixes, objective, limit_vectors([job.profile for job in mixes.jobs]))
    if search is None:
        return FoundLimits((), 0)
    found = different([search.estimated()], search.surrogate.answers.gpu)
    return FoundLimits(tuple(found), len(search.combined()))


def _search(mixes: Mixes, objective: ObjectiveName, usual: Sequence[Mps]) -> "_LimitSearch | None":
    """The search; None where there is nothing to estimate by, or the `usual` limits do not fit."""
    surrogate = mixes.surrogate()
    if (
        surrogate is None
        or not surrogate.knows("mps-limits")
        or not surrogate.fit(usual[0].limits[0], MAX_OOM_PROBABILITY)
    ):
        return None
    return _LimitSearch(mixes, surrogate, OBJECTIVES[objective])


def kept(ordered: Sequence[Mps], names: Sequence[str], most: int = _FORECAST) -> list[Mps]:
    """The first of `ordered`, and others that can be predicted in the time that there is.

    The best that is the same for all comes next, since a short replay tells equal limits apart
    better than it tells them from unequal ones.
    """
    same = [each for each in ordered if len(set(each.limits)) == 1]
    found: list[Mps] = []
    left = _MOST_REPLAYS
    for each in dict.fromkeys((ordered[0], *same[:1], *ordered)):
        kinds = len(set(zip(names, each.limits, strict=True)))
        replays = 1 if len(set(each.limits)) == 1 else 3 * kinds
        if not found or (len(found) < most and replays <= left):
            found.append(each)
            left -= replays
    return found


@dataclass(frozen=True, slots=True)
class _LimitSearch:
    """The search for limits of the jobs of `mixes`, with what it knows of them."""

    mixes: Mixes
    surrogate: SurrogatePredictor
    objective: Objective

    @property
    def most(self) -> int:
        """The most vectors that may be combined."""
        return min(MOST_COMBINED, _MOST_PACES // len(self.mixes.jobs))

    def combined(self) -> Floats:
        """All vectors of the finest grid with few enough of them, shape (vectors, jobs)."""
        places = self.mixes.copies()
        grid = next((each for each in GRIDS if count(places, each) <= self.most), (100,))
        kinds = [of_copies(grid, len(each)) for each in places]
        order = np.argsort(np.concatenate(places))
        rows = [sum(each, ()) for each in product(*kinds)]
        return np.array(rows, dtype=np.float64)[:, order]

    def estimated(self) -> Mps:
        """The best of `combined` by the surrogate model alone."""
        vectors = self.combined()
        best = vectors[np.argmin(self.costs(vectors))]
        return Mps(tuple(map(float, best)))

    def tuned(self, usual: Sequence[Mps], level: Level) -> FoundLimits:
        """The best vectors, found by predicting the most promising one after another."""
        jobs = len(self.mixes.jobs)
        same = [(float(each),) * jobs for each in EQUAL_GRID if worth_trying(each, jobs)]
        every = self.combined()
        best = every[np.argsort(self.costs(every), kind="stable")[:_PROMISING]]
        rows = [*same, *(each.limits for each in usual), *map(tuple, best)]
        vectors = np.array(list(dict.fromkeys(rows)))
        sharings = [Mps(tuple(map(float, row))) for row in vectors]
        estimated_s = self.surrogate.limited(vectors)

        def predicted_s(at: int) -> list[float]:
            return [each.step_s.at(level) for each in self.mixes.whole(sharings[at]).jobs]

        def cost(steps_s: Floats) -> Floats:
            return self.costs(vectors, np.maximum(steps_s, self.surrogate.jobs.step_s), estimated_s)

        tries = range(len(same)), _TRIED
        ordered = promising(vectors, estimated_s, predicted_s, cost, tries)
        unlike = different([sharings[at] for at in ordered], self.surrogate.answers.gpu)
        return FoundLimits(tuple(unlike[:_OF_FEW]), len(every) + len(same) + len(usual))

    def compared(self) -> tuple[Floats, Floats]:
        """The vectors to compare, shape (vectors, jobs), and the cost of each."""
        coarse = self.combined()
        costs = self.costs(coarse)
        if len(self.mixes.copies()) == 1:
            return coarse, costs
        fine = self._varied(coarse[np.argsort(costs, kind="stable")])
        kept, _ = distinct(np.concatenate([coarse, fine]))
        fine = fine[kept[kept >= len(coarse)] - len(coarse)]
        return np.concatenate([coarse, fine]), np.concatenate([costs, self.costs(fine)])

    def _varied(self, ordered: Floats) -> Floats:
        """The best few of `ordered`, each limit in turn replaced by every value of `LIMIT_GRID`."""
        jobs, grid = ordered.shape[1], np.array(LIMIT_GRID, dtype=np.float64)
        best = ordered[: min(_REFINED, 1 + self.most // (jobs * len(grid)))]
        varied = np.broadcast_to(best[:, None, None, :], (len(best), jobs, len(grid), jobs)).copy()
        for job in range(jobs):
            varied[:, job, :, job] = grid
        rows = varied.reshape(-1, jobs)
        for copies in self.mixes.copies():  # which of them has which limit says nothing
            rows[:, copies] = np.sort(rows[:, copies], axis=1)
        return rows

    def replayed(self, sharings: Sequence[Mps]) -> list[Mps]:
        """`sharings`, the best by a short replay of all jobs first."""
        vectors = np.array([each.limits for each in sharings])
        costs = self.costs(vectors, self.surrogate.replayed(sharings))
        return [sharings[at] for at in np.argsort(costs, kind="stable")]

    def costs(
        self, vectors: Floats, together_s: Floats | None = None, estimated_s: Floats | None = None
    ) -> Floats:
        """Cost of each of `vectors`, shape (vectors,); only the order of the costs matters.

        Args:
            vectors: Shape (vectors, jobs).
            together_s: Seconds of a step while all jobs run, same shape, where known better than
                estimated.
            estimated_s: Estimated seconds of a step, as `SurrogatePredictor.limited` answers; None:
                ask it.
        """
        estimated_s = self.surrogate.limited(vectors) if estimated_s is None else estimated_s
        steps_s = estimated_s if together_s is None else together_s
        deadlines_s = np.array([job.deadline_s or np.inf for job in self.mixes.jobs])
        return self.objective.of_limits(
            steps_s / self.surrogate.jobs.step_s,
            lambda: self._ends_s(vectors, estimated_s, steps_s),
            deadlines_s,
        )

    def _ends_s(self, vectors: Floats, estimated_s: Floats, together_s: Floats) -> Floats:
        """Seconds until each job ends, if steps take `together_s` while all jobs run.

        Later steps, of fewer jobs, are estimated and corrected by the ratio of `together_s` to
        `estimated_s`.
        """
        work = np.array([job.work_steps or 0.0 for job in self.mixes.jobs])
        longer = together_s / estimated_s

        def steps_s(at: Indices, running: NDArray[np.bool_]) -> Floats:
            if running.all():
                return together_s[at]
            return self._steps(vectors[at], running) * longer[at]

        return array_ends_s(np.broadcast_to(work, vectors.shape), steps_s)

    def _steps(self, vectors: Floats, running: NDArray[np.bool_]) -> Floats:
        """As `SurrogatePredictor.limited`, once for vectors that differ only for ended jobs."""
        rows = np.where(running, vectors, 0.0)
        kept, which = distinct(rows)
        return self.surrogate.limited(np.maximum(rows[kept], 1.0), rows[kept] > 0)[which]
