"""The best MPS limits: hundreds of vectors are estimated, and the best are replayed.

Estimates of similar limits have similar errors: each short replay corrects the other estimates.
Without traces there are estimates alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.plan import ObjectiveName, step
from advisor.plan.forecast import Mixes
from advisor.plan.job_sets import equal_limits
from advisor.plan.objectives import OBJECTIVES, costs_of_ways
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.mix_steps import SurrogatePredictor, paced_steps
from advisor.prediction.prediction import Level
from advisor.prediction.surrogate import LIMIT_GRID
from advisor.prediction.trace import Floats
from advisor.sharing import Mps
from advisor.simulation.turns import Bools, Indices, array_ends_s
from advisor.workload.job import Job
from advisor.workload.profile import Profile

# The best vectors by the surrogate model are varied in rounds, each limit in turn by some steps of
# `LIMIT_GRID`: as good as all vectors of a grid, over 40 sets of 2 to 7 jobs.
_VARIED, _ROUNDS, _STEPS = 6, 4, np.array((-2, -1, 1, 2))
# Up to so many jobs, all vectors of the grid are estimated: that takes no longer.
_ALL_TRIED = 3
# How many of the best are compared further, and how many of these are replayed for a short time in
# each of some rounds. The best of more than two rounds is no better.
_PROMISING, _REPLAYED, _LEARNING = 100, 6, 2
# How many of the best are returned: forecasts of all of them are of so many jobs, or of one vector.
_FORECAST = 6
# How often, and how many at most, vectors are replayed that differ from the best in one limit, by
# some steps of the grid.
_DESCENTS, _NEAR, _APART = 2, 8, (-4, -2, -1, 1, 2, 4)
# Length scale of the likeness of limits, in octaves: best of 0.5, 1 and 2 for 6 job sets.
_OCTAVES = 1.0
# Variance of the log of a replayed step between limits that hardly differ.
_UNEVEN = 0.01

# Sums, in per cent, of limits in proportion to the SMs that each job uses alone.
_PROPORTIONAL_SUMS = (100, 150, 200)
_SMALLEST, _LARGEST = 5, 100

# Limits of all other jobs where some are protected, in per cent.
_LIMITS_OF_OTHERS = (57.0, 43.0, 28.0, 14.0)


def limit_vectors(profiles: Sequence[Profile]) -> list[Mps]:
    """Return MPS with the limits that are always tried for these jobs."""
    degree = len(profiles)
    equal = {round(100 / degree), *equal_limits(degree)}
    vectors = [(float(each),) * degree for each in sorted(equal)]
    # The mean share of the SMs that each job uses alone; its busy share without that counter.
    demands = [
        (each.counters and each.counters.sm_active) or each.busy_share or 1.0 for each in profiles
    ]
    for total in _PROPORTIONAL_SUMS:
        shares = [round(total * demand / sum(demands)) for demand in demands]
        vectors.append(tuple(float(min(_LARGEST, max(_SMALLEST, share))) for share in shares))
    return [Mps(vector) for vector in dict.fromkeys(vectors)]


def equal_vectors(copies: int) -> list[Mps]:
    """Return MPS with each equal limit that is tried for so many copies of one job."""
    fair, *more = (round(total / copies) for total in _PROPORTIONAL_SUMS)
    grid = {fair, *more, *equal_limits(copies), *LIMIT_GRID}
    return [Mps((float(each),) * copies) for each in sorted(grid) if fair <= each < _LARGEST]


def protecting_limits(jobs: Sequence[Job]) -> list[Mps]:
    """Return MPS with limits for all but the protected jobs; none if all jobs are equal in that."""
    protected = [job.protect is not None for job in jobs]
    if len(set(protected)) < 2:
        return []
    return [Mps(tuple(100.0 if own else limit for own in protected)) for limit in _LIMITS_OF_OTHERS]


def best_limits(
    mixes: Mixes, objective: ObjectiveName, level: Level = "p50"
) -> tuple[list[Mps], int]:
    """Return MPS with the limits that are best at `level`, and the number of vectors compared."""
    usual, surrogate = limit_vectors([job.profile for job in mixes.jobs]), mixes.surrogate()
    if len(mixes.copies()) == 1:  # as where advisor counts copies
        equal = equal_vectors(len(mixes.jobs))
        equal.sort(key=lambda each: mixes.whole(each).jobs[0].step_s.at(level))
        return equal[:2], len(equal)
    if (
        surrogate is None
        or not surrogate.knows("mps-limits")
        or not surrogate.fit(usual[0].limits[0], MAX_OOM_PROBABILITY)
    ):
        return usual, len(usual)
    search = _LimitSearch(mixes, surrogate, objective)
    vectors, compared = search.estimated(usual)
    best = search.replayed([*usual, *map(_mps, vectors)])
    # Replays may pass over the best by estimates.
    return _different([*best, _mps(vectors[0])], surrogate.gpu), compared


def _different(sharings: Sequence[Mps], gpu: Gpu) -> list[Mps]:
    """Drop those of `sharings` that leave every job the same SMs as an earlier one, or all SMs."""
    first: dict[tuple[float, ...], Mps] = {}
    for sharing in sharings:
        first.setdefault(tuple(limit_shares(sharing.limits, gpu.sms)), sharing)
    return [each for shares, each in first.items() if min(shares) < 1]


def _mps(row: Floats) -> Mps:
    return Mps(tuple(map(float, row)))


class _LimitSearch:
    """The search for limits of the jobs of `mixes`; vectors of limits have the shape (jobs,)."""

    def __init__(
        self, mixes: Mixes, surrogate: SurrogatePredictor, objective: ObjectiveName
    ) -> None:
        self._jobs, self._copies = mixes.jobs, mixes.copies()
        self._surrogate, self._objective = surrogate, OBJECTIVES[objective]

    def estimated(self, usual: Sequence[Mps]) -> tuple[Floats, int]:
        """Vary the best vectors, one limit at a time: the best ones, and the number compared."""
        grid, own = np.array(LIMIT_GRID, dtype=np.float64), np.eye(len(self._jobs), dtype=np.intp)
        costs: dict[tuple[float, ...], float] = {}
        new = np.array([each.limits for each in usual])
        if new.shape[1] <= _ALL_TRIED:
            every = np.stack(np.meshgrid(*[grid] * new.shape[1]), axis=-1)
            new = np.concatenate([new, every.reshape(-1, new.shape[1])])
        for _ in range(_ROUNDS + 1):
            for copies in self._copies:  # it does not matter which of them has which limit
                new[:, copies] = np.sort(new[:, copies], axis=1)
            rows = [row for row in dict.fromkeys(map(tuple, new.tolist())) if row not in costs]
            if not rows:
                break
            costs |= zip(rows, self._costs(np.array(rows)).tolist(), strict=True)
            best = np.array(sorted(costs, key=costs.__getitem__)[:_VARIED])
            places = np.searchsorted(grid, best)[:, None, None] + _STEPS[:, None, None] * own
            new = grid[np.clip(places, 0, len(grid) - 1)].reshape(-1, len(own))
        return np.array(sorted(costs, key=costs.__getitem__)[:_PROMISING]), len(costs)

    def replayed(self, sharings: Sequence[Mps]) -> list[Mps]:
        """Replay the best few of `sharings`, in rounds, then `_varied`."""
        surrogate, tried = self._surrogate, list[int]()
        sharings = _different(sharings, surrogate.gpu)
        vectors = np.array([each.limits for each in sharings])
        equal = np.flatnonzero((vectors == vectors[:, :1]).all(axis=1)).tolist()
        estimated_s, places = surrogate.limited(vectors), np.log2(vectors)
        if not surrogate.replays:
            return self._best(dict(zip(map(tuple, vectors.tolist()), estimated_s, strict=True)))
        apart = ((places[:, None] - places[None]) ** 2).sum(axis=2)
        likeness = np.exp(-apart / (2 * _OCTAVES**2))
        steps_s, replayed_s = estimated_s, np.empty((0, vectors.shape[1]))
        for _ in range(_LEARNING):
            order = np.argsort(self._costs(vectors, steps_s), kind="stable").tolist()
            new = [at for at in order if at not in tried and (tried or at not in equal)][:_REPLAYED]
            new += [] if tried else equal
            if not new:
                break
            tried += new
            own_s = surrogate.replayed([sharings[at] for at in new])
            replayed_s = np.concatenate([replayed_s, own_s])
            # The mean of one Gaussian process for each job corrects the log of its estimates.
            ratios = np.log(replayed_s / estimated_s[tried])
            own, middle = likeness[np.ix_(tried, tried)], ratios.mean(axis=0)
            weights = np.linalg.solve(own + _UNEVEN * np.eye(len(tried)), ratios - middle)
            corrected_s = estimated_s * np.exp(middle + likeness[:, tried] @ weights)
            steps_s = np.maximum(corrected_s, surrogate.step_s)
        vectors_of = (tuple(row) for row in vectors[tried].tolist())
        return self._varied(dict(zip(vectors_of, replayed_s, strict=True)))

    def _varied(self, replayed_s: dict[tuple[float, ...], Floats]) -> list[Mps]:
        """Replay what differs from the best vector in one limit: the best, and the best equal."""
        for _ in range(_DESCENTS):
            best = self._ordered(replayed_s)[0]
            near = [each for each in self._near(best, replayed_s[best]) if each not in replayed_s]
            if new := near[:_NEAR]:
                steps_s = self._surrogate.replayed([Mps(each) for each in new])
                replayed_s |= zip(new, steps_s, strict=True)
        return self._best(replayed_s)

    def _best(self, steps_s: Mapping[tuple[float, ...], Floats]) -> list[Mps]:
        """Return the best of vectors with different limits, and the best with equal ones."""
        ordered, most = self._ordered(steps_s), max(1, _FORECAST // len(self._jobs))
        unequal = [each for each in ordered if len(set(each)) > 1]
        equal = [each for each in ordered if len(set(each)) == 1]
        return [Mps(each) for each in (*unequal[:most], *equal[:1])]

    def _ordered(self, steps_s: Mapping[tuple[float, ...], Floats]) -> list[tuple[float, ...]]:
        """Order vectors by their costs, from the steps while all jobs run."""
        every = list(steps_s)
        costs = self._costs(np.array(every), np.array([*steps_s.values()]))
        return [every[at] for at in np.argsort(costs, kind="stable")]

    def _near(self, best: tuple[float, ...], steps_s: Floats) -> list[tuple[float, ...]]:
        """Order what differs from `best` in one limit by estimates, which are off as for `best`."""
        grid, own = np.array(LIMIT_GRID, dtype=np.float64), np.eye(len(best), dtype=np.intp)
        places = np.searchsorted(grid, best) + np.array(_APART)[:, None, None] * own
        near = grid[np.clip(places, 0, len(grid) - 1)].reshape(-1, len(best))
        for copies in self._copies:
            near[:, copies] = np.sort(near[:, copies], axis=1)
        off = steps_s / self._surrogate.limited(np.array([best]))
        near_s = np.maximum(self._surrogate.limited(near) * off, self._surrogate.step_s)
        costs = self._costs(near, near_s)
        order = np.argsort(costs, kind="stable")
        return list(dict.fromkeys(map(tuple, near[order].tolist())))

    def _costs(self, vectors: Floats, together_s: Floats | None = None) -> Floats:
        """Cost of each of `vectors`, shape (vectors,); only the order of the costs matters.

        Steps while all jobs run take `together_s`, shape (vectors, jobs), if known better than by
        the surrogate; estimates of later steps, of fewer jobs, are corrected by the same ratio.
        """
        step()
        surrogate, work = self._surrogate, [job.work_steps or 0.0 for job in self._jobs]
        estimated_s = surrogate.limited(vectors)
        steps_s = estimated_s if together_s is None else together_s

        def left_s(at: Indices, running: Bools) -> Floats:
            if running.all():
                return paced_steps(surrogate.profiles, steps_s[at])
            rows = np.where(running, vectors[at], 0.0)  # of many, equal but for jobs that ended
            keys = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel()
            _, kept, which = np.unique(keys, return_index=True, return_inverse=True)
            own_s = surrogate.limited(np.maximum(rows[kept], 1.0), rows[kept] > 0)[which]
            return paced_steps(surrogate.profiles, own_s * steps_s[at] / estimated_s[at])

        slowdowns = ends_s = steps_s / surrogate.step_s
        if self._objective.in_seconds:
            ends_s = array_ends_s(np.broadcast_to(work, vectors.shape), left_s)
        return costs_of_ways(self._objective, self._jobs, slowdowns, ends_s)
