"""The best MPS limits: the surrogate model estimates thousands of vectors, the best are predicted.

Estimates of similar limits have similar errors, so of up to `FEW` jobs each prediction
corrects the estimates of the others. Of more jobs, the best are replayed for a short time first.
Without surrogate model, traces or counters, only a few vectors are tried, which are always tried.
"""

from collections.abc import Sequence
from itertools import combinations, product
from math import comb, prod

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.plan import ObjectiveName
from advisor.plan.forecast import Mixes
from advisor.plan.job_sets import equal_limits
from advisor.plan.objectives import OBJECTIVES, costs_of_ways
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.mix_steps import SurrogatePredictor, paced_steps
from advisor.prediction.prediction import Level
from advisor.prediction.surrogate import LIMIT_GRID
from advisor.prediction.trace import Floats
from advisor.sharing import Mps
from advisor.simulation.events import Bools, Indices, array_ends_s
from advisor.workload.job import Job
from advisor.workload.profile import Profile

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
FEW, _PROMISING, _TRIED, _OF_FEW = 3, 500, 10, 5

# Sums, in per cent, of unequal limits in proportion to the SMs that each job uses alone.
PROPORTIONAL_SUMS = (100, 150, 200)
_SMALLEST, _LARGEST = 5, 100

# Limits of all other jobs where some are protected, in per cent.
_LIMITS_OF_OTHERS = (57.0, 43.0, 28.0, 14.0)


def limit_vectors(profiles: Sequence[Profile]) -> list[Mps]:
    """Return MPS with the limits that are always tried for these jobs."""
    degree = len(profiles)
    equal = {round(100 / degree), *equal_limits(degree)}
    vectors = [(float(each),) * degree for each in sorted(equal)]
    # The mean share of the SMs that each job uses alone; its busy share without that counter.
    demands = [(each.counters and each.counters.sm_active) or each.busy_share or 1.0
               for each in profiles]  # fmt: skip
    for total in PROPORTIONAL_SUMS:
        shares = [round(total * demand / sum(demands)) for demand in demands]
        vectors.append(tuple(float(min(_LARGEST, max(_SMALLEST, share))) for share in shares))
    return [Mps(vector) for vector in dict.fromkeys(vectors)]


def equal_vectors(copies: int) -> list[Mps]:
    """Return MPS with each equal limit that is tried for so many copies of one job."""
    fair, *more = (round(total / copies) for total in PROPORTIONAL_SUMS)
    grid = {fair, *more, *equal_limits(copies), *LIMIT_GRID}
    return [Mps((float(each),) * copies) for each in sorted(grid) if fair <= each < _LARGEST]


def _fastest_equal(mixes: Mixes, level: Level) -> Mps:
    """The equal limits under which copies of one job are fastest."""
    vectors = equal_vectors(len(mixes.jobs))
    return min(vectors, key=lambda each: mixes.whole(each).jobs[0].step_s.at(level))


def protecting_limits(jobs: Sequence[Job]) -> list[Mps]:
    """Return MPS with limits for all but the protected jobs; none if all jobs are equal in that."""
    protected = [job.protect is not None for job in jobs]
    if len(set(protected)) < 2:
        return []
    return [Mps(tuple(100.0 if own else limit for own in protected)) for limit in _LIMITS_OF_OTHERS]


# Length scale of the likeness of limits, in octaves: best of 0.5, 1 and 2 for 6 job sets.
_OCTAVES = 1.0
# Variance of the log of a predicted step between limits that hardly differ.
_UNEVEN = 0.01


def _learnt(places: Floats, tried: Sequence[int], ratios: Floats) -> Floats:
    """Correction of the log of every estimate, shape (vectors, jobs), learnt from those `tried`.

    It is the mean of one Gaussian process for each job. `places` are the logs of the limits.
    """
    middle = ratios.mean(axis=0)
    distance = ((places[:, None] - places[tried][None]) ** 2).sum(axis=2)
    likeness = np.exp(-distance / (2 * _OCTAVES**2))
    own = likeness[tried] + _UNEVEN * np.eye(len(tried))
    return np.asarray(middle + likeness @ np.linalg.solve(own, ratios - middle))


def different(sharings: Sequence[Mps], gpu: Gpu) -> list[Mps]:
    """Drop those of `sharings` that leave every job the same SMs as an earlier one, or all SMs."""
    first: dict[tuple[float, ...], Mps] = {}
    for sharing in sharings:
        first.setdefault(tuple(limit_shares(sharing.limits, gpu.sms)), sharing)
    return [each for shares, each in first.items() if min(shares) < 1]


def distinct(vectors: Floats) -> tuple[Indices, Indices]:
    """Index the first of each group of equal vectors, and the group of each vector."""
    rows = np.ascontiguousarray(vectors.astype(np.uint8))  # limits are whole per cents
    _, kept, which = np.unique(
        rows.view(f"V{vectors.shape[1]}").ravel(), return_index=True, return_inverse=True
    )
    return kept, which


def of_copies(grid: Sequence[int], copies: int) -> list[tuple[int, ...]]:
    """Return vectors for copies of one job, of at most two different limits of `grid`.

    It does not matter which copy has which limit, and more different limits are of no use.
    """
    return [(each,) * copies for each in grid] + [
        (low,) * few + (high,) * (copies - few)
        for low, high in combinations(grid, 2)
        for few in range(1, copies)
    ]


def best_limits(
    mixes: Mixes, objective: ObjectiveName, level: Level = "p50"
) -> tuple[list[Mps], int]:
    """Return MPS with the limits that are best at `level`, and the number of vectors compared."""
    usual = limit_vectors([job.profile for job in mixes.jobs])
    # Of copies, all equal limits are predicted, as where advisor counts copies.
    equal = [_fastest_equal(mixes, level)] if len(mixes.copies()) == 1 else []
    search = _limit_search(mixes, objective, usual)
    if search is None:
        return list(dict.fromkeys([*usual, *equal])), len(usual)
    if len(mixes.jobs) <= FEW:
        tuned, compared = search.tuned(usual, level)
        return different([*tuned, *equal], search.gpu), compared
    vectors, costs = search.compared()
    replayed, most = (REPLAYED, _FORECAST) if len(mixes.copies()) > 1 else _OF_COPIES
    best = vectors[np.argsort(costs, kind="stable")[:replayed]]
    sharings = different([*usual, *map(_mps, best)], search.gpu)
    limits = np.array([each.limits for each in sharings])
    costs = search.costs(limits, search.surrogate.replayed(sharings))
    ordered = [sharings[at] for at in np.argsort(costs, kind="stable")]
    names = [job.name for job in mixes.jobs]
    # The rough answer's as well: a short replay may pass over it, and nothing worse may follow it.
    best_few = [*affordable(ordered, names, most), search.estimated, *equal]
    return different(best_few, search.gpu), len(vectors) + len(usual)


def estimated_limits(mixes: Mixes, objective: ObjectiveName) -> tuple[list[Mps], int]:
    """Choose limits as `best_limits`, by the surrogate model alone: one vector at most."""
    usual = limit_vectors([job.profile for job in mixes.jobs])
    search = _limit_search(mixes, objective, usual)
    if search is None:
        return [], 0
    return different([search.estimated], search.gpu), len(search.coarse)


def affordable(ordered: Sequence[Mps], names: Sequence[str], most: int) -> list[Mps]:
    """Return the first of `ordered`, and others that can be predicted in the time that there is.

    The best that is the same for all comes next, because a short replay compares equal limits with
    each other better than with unequal ones.
    """
    same = [each for each in ordered if len(set(each.limits)) == 1]
    chosen: list[Mps] = []
    left = _MOST_REPLAYS
    for sharing in dict.fromkeys((ordered[0], *same[:1], *ordered)):
        kinds = len(set(zip(names, sharing.limits, strict=True)))
        replays = 1 if len(set(sharing.limits)) == 1 else 3 * kinds
        if not chosen or (len(chosen) < most and replays <= left):
            chosen.append(sharing)
            left -= replays
    return chosen


def _mps(row: Floats) -> Mps:
    return Mps(tuple(map(float, row)))


class _LimitSearch:
    """The search for limits of the jobs of `mixes`.

    Attributes:
        coarse: All vectors of the finest grid with few enough of them, shape (vectors, jobs).
        coarse_costs: Their costs by the surrogate model alone, shape (vectors,).
        estimated: The best of these vectors.
    """

    def __init__(
        self, mixes: Mixes, surrogate: SurrogatePredictor, objective: ObjectiveName
    ) -> None:
        self.mixes, self.surrogate, self.gpu = mixes, surrogate, surrogate.gpu
        self._objective = OBJECTIVES[objective]
        self._most = min(MOST_COMBINED, _MOST_PACES // len(mixes.jobs))
        self.coarse = self._combined()
        self.coarse_costs = self.costs(self.coarse)
        self.estimated = _mps(self.coarse[np.argmin(self.coarse_costs)])

    def _combined(self) -> Floats:
        places = self.mixes.copies()

        def few(grid: Sequence[int]) -> bool:
            """Check that `of_copies` makes few enough vectors of `grid`."""
            of_two = comb(len(grid), 2)
            return prod(len(grid) + (len(own) - 1) * of_two for own in places) <= self._most

        grid = next(filter(few, GRIDS), (100,))
        rows = [sum(each, ()) for each in product(*(of_copies(grid, len(own)) for own in places))]
        return np.array(rows, dtype=np.float64)[:, np.argsort(np.concatenate(places))]

    def tuned(self, usual: Sequence[Mps], level: Level) -> tuple[list[Mps], int]:
        """Predict the most promising vectors in turn: the best ones, and the number compared."""
        jobs = len(self.mixes.jobs)
        same = [(float(each),) * jobs for each in equal_limits(jobs)]
        best = self.coarse[np.argsort(self.coarse_costs, kind="stable")[:_PROMISING]]
        rows = [*same, *(each.limits for each in usual), *map(tuple, best)]
        vectors = np.array(list(dict.fromkeys(rows)))
        sharings = list(map(_mps, vectors))
        estimated_s, alone_s = self.surrogate.limited(vectors), self.surrogate.jobs.step_s
        estimated, places = np.log(estimated_s), np.log2(vectors)

        def correction(at: int) -> Floats:
            steps_s = [each.step_s.at(level) for each in self.mixes.whole(sharings[at]).jobs]
            return np.asarray(np.log(steps_s) - estimated[at])

        def costs(logs: Floats) -> Floats:
            return self.costs(vectors, np.maximum(np.exp(logs), alone_s), estimated_s)

        tried = list(range(len(same)))
        corrections = list(map(correction, tried))
        for _ in range(min(_TRIED, len(vectors) - len(tried))):
            estimates = costs(estimated + _learnt(places, tried, np.array(corrections)))
            estimates[tried] = np.inf
            tried.append(int(np.argmin(estimates)))
            corrections.append(correction(tried[-1]))
        corrected = estimated.copy()
        corrected[tried] += corrections
        final = costs(corrected)
        ordered = sorted(tried, key=lambda at: float(final[at]))
        unequal = different([sharings[at] for at in ordered], self.gpu)
        return unequal[:_OF_FEW], len(self.coarse) + len(same) + len(usual)

    def compared(self) -> tuple[Floats, Floats]:
        """The coarse vectors and variants of the best few, one limit at a time; and their costs."""
        coarse, costs = self.coarse, self.coarse_costs
        if len(self.mixes.copies()) == 1:
            return coarse, costs
        ordered = coarse[np.argsort(costs, kind="stable")]
        jobs, grid = ordered.shape[1], np.array(LIMIT_GRID, dtype=np.float64)
        best = ordered[: min(_REFINED, 1 + self._most // (jobs * len(grid)))]
        varied = np.broadcast_to(best[:, None, None, :], (len(best), jobs, len(grid), jobs)).copy()
        for job in range(jobs):
            varied[:, job, :, job] = grid
        fine = varied.reshape(-1, jobs)
        for copies in self.mixes.copies():  # it does not matter which of them has which limit
            fine[:, copies] = np.sort(fine[:, copies], axis=1)
        kept, _ = distinct(np.concatenate([coarse, fine]))
        fine = fine[kept[kept >= len(coarse)] - len(coarse)]
        return np.concatenate([coarse, fine]), np.concatenate([costs, self.costs(fine)])

    def costs(
        self, vectors: Floats, together_s: Floats | None = None, estimated_s: Floats | None = None
    ) -> Floats:
        """Cost of each of `vectors`, shape (vectors,); only the order of the costs matters.

        Steps while all jobs run take `together_s`, if known better than `estimated_s`, which is the
        answer of `SurrogatePredictor.limited`; both have the shape (vectors, jobs).
        """
        estimated_s = self.surrogate.limited(vectors) if estimated_s is None else estimated_s
        steps_s = estimated_s if together_s is None else together_s
        slowdowns = steps_s / self.surrogate.jobs.step_s
        by = self._objective
        ends_s = self._ends_s(vectors, estimated_s, steps_s) if by.in_seconds else slowdowns
        return costs_of_ways(by, self.mixes.jobs, slowdowns, ends_s)

    def _ends_s(self, vectors: Floats, estimated_s: Floats, together_s: Floats) -> Floats:
        """Seconds until each job ends, if steps take `together_s` while all jobs run.

        Later steps, of fewer jobs, are estimated and corrected by the ratio of `together_s` to
        `estimated_s`.
        """
        work = np.array([job.work_steps or 0.0 for job in self.mixes.jobs])
        longer, profiles = together_s / estimated_s, self.surrogate.profiles

        def steps_s(at: Indices, running: Bools) -> Floats:
            if running.all():
                return paced_steps(profiles, together_s[at])
            rows = np.where(running, vectors[at], 0.0)
            kept, which = distinct(rows)  # once for vectors that differ only for ended jobs
            left_s = self.surrogate.limited(np.maximum(rows[kept], 1.0), rows[kept] > 0)
            return paced_steps(profiles, left_s[which] * longer[at])

        return array_ends_s(np.broadcast_to(work, vectors.shape), steps_s)


def _limit_search(
    mixes: Mixes, objective: ObjectiveName, usual: Sequence[Mps]
) -> _LimitSearch | None:
    """The search; None where there is nothing to estimate by, or the `usual` limits do not fit."""
    surrogate = mixes.surrogate()
    if surrogate is None or not surrogate.knows("mps-limits"):
        return None
    fits = surrogate.fit(usual[0].limits[0], MAX_OOM_PROBABILITY)
    return _LimitSearch(mixes, surrogate, objective) if fits else None
