"""Jobs that share a GPU of a pool: how long they take, estimated many at once, or predicted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.hardware.partition import whole_gpu
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.job_sets import Kinds, Members
from advisor.plan.objectives import throughput
from advisor.plan.placement import FleetGroup, Problem
from advisor.plan.rules import MAX_OOM_PROBABILITY, broken_rule, memory_problem
from advisor.plan.values import Forecast, Question
from advisor.prediction.cache import answer_all
from advisor.prediction.mix_steps import SurrogatePredictor, Tenancy
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Group, Mode, Mps, Naive, Queue, Serial, Sharing
from advisor.sharing.groups import in_turn, most_at_once
from advisor.simulation.events import DONE, Indices
from advisor.workload.job import Job

WAYS: dict[Mode, Concurrent] = {"mps": Mps(), "naive": Naive()}
"""To share a whole GPU without limits."""

MOST_TOGETHER = 8
"""Jobs at once on a GPU at most: what was ever measured together."""


@dataclass(frozen=True, slots=True)
class GpuQueue:
    """Kinds of jobs that start on a GPU in this order, at most `at_once` at a time.

    A batch is a queue that starts all its jobs at once.
    """

    order: Members
    at_once: int

    def sharing(self, way: Concurrent) -> Sharing:
        """Return how its jobs, numbered in their order, share the GPU."""
        jobs = tuple(range(1, len(self.order) + 1))
        if self.at_once == 1 or len(jobs) == 1:
            return Serial()
        if len(jobs) <= self.at_once:
            return way
        return in_turn([Group(jobs, Queue(way, self.at_once))])


class GroupPool:
    """Queues of jobs on a GPU of one pool, each estimated and predicted once.

    Attributes:
        jobs: A job of each kind, shape (kinds,), as profiled on this model of GPU.
    """

    def __init__(self, number: int, kinds: Kinds, problem: Problem, question: Question) -> None:
        self.number, self._kinds = number, kinds
        self._problem, self._question = problem, question
        pool = problem.pools[number]
        self.jobs = [pool.jobs[positions[0]] for positions in kinds.positions]
        surrogate = question.predictor.surrogate([job.profile for job in self.jobs])
        self._estimator = (
            None if surrogate is None else _Estimator(self.jobs, surrogate, question, problem)
        )
        alone = [question.predictor.predict([job.profile], Serial()) for job in self.jobs]
        margin = question.conditions.memory_margin
        self.holds = [memory_problem(mix, question.gpu, margin) is None for mix in alone]
        self._held_mib = [mix.jobs[0].memory_mib for mix in alone]
        self._obeyed: dict[tuple[Mode, tuple[int, ...]], bool] = {}
        self._fitting: dict[tuple[Mode, Members], bool] = {}
        self._estimated: dict[GpuQueue, FleetGroup | None] = {}
        self._predicted: dict[GpuQueue, FleetGroup | None] = {}

    def allows(self, queue: GpuQueue, mode: Mode = "mps") -> bool:
        """Check that any of the jobs that may meet are allowed to share, and fit in memory."""
        if not all(self.holds[kind] for kind in queue.order) or not self._host_holds(queue):
            return False
        if len(queue.order) == 1:
            return True
        if any(self.jobs[kind].gpus > 1 for kind in queue.order):
            return False
        if queue.at_once == 1:
            return True
        largest = sorted(queue.order, key=lambda kind: -self._held_mib[kind])[: queue.at_once]
        return self._obeys(queue, mode) and self._fits(tuple(sorted(largest)), mode)

    def _host_holds(self, queue: GpuQueue) -> bool:
        """Check the memory of the host, of which each GPU has an equal part; not measured: none."""
        pool = self._problem.pools[self.number]
        if pool.host_memory_mib is None:
            return True
        held_mib = sorted(self.jobs[kind].profile.host_memory_mib or 0.0 for kind in queue.order)
        gpus = max(self.jobs[kind].gpus for kind in queue.order)
        part_mib = pool.host_memory_mib / pool.host_gpus * gpus
        return sum(held_mib[-queue.at_once :]) * gpus <= part_mib

    def _obeys(self, queue: GpuQueue, mode: Mode) -> bool:
        """Check that no rule forbids it; jobs that are equal for all rules are checked once."""
        ruled = sorted({self._kinds.ruled_as[kind] for kind in queue.order})
        key = mode, (min(queue.at_once, len(queue.order)), *ruled)
        if key not in self._obeyed:
            first = [self.jobs[kind] for kind in ruled]
            jobs, question = [*first, *[first[0]] * (key[1][0] - len(first))], self._question
            broken = broken_rule(jobs, WAYS[mode], question.gpu, question.conditions)
            self._obeyed[key] = broken is None
        return self._obeyed[key]

    def _fits(self, members: Members, mode: Mode) -> bool:
        if (mode, members) not in self._fitting:
            if self._estimator is not None:
                fits = self._estimator.fits(members, mode)
            else:
                profiles = [self.jobs[kind].profile for kind in members]
                question = self._question
                mix = question.predictor.predict(profiles, WAYS[mode])
                margin = question.conditions.memory_margin
                fits = not memory_problem(mix, question.gpu, margin)
            self._fitting[mode, members] = fits
        return self._fitting[mode, members]

    def estimated(self, queues: Sequence[GpuQueue]) -> list[FleetGroup | None]:
        """Estimate queues, each in its better way; None: it is not allowed. Else predict them."""
        if self._estimator is None:
            return self.predicted(queues)
        new = [each for each in dict.fromkeys(queues) if each not in self._estimated]
        self._estimated |= dict.fromkeys(new)
        for mode, way in WAYS.items():
            # Time slices pay where all jobs start at once, and where MPS is not allowed.
            allowed = [
                each
                for each in new
                if self.allows(each, mode)
                and (each.at_once >= len(each.order) or self._estimated[each] is None)
            ]
            ends = self._estimator.outcomes(allowed, mode) if allowed else []
            for queue, (ends_s, energy_j) in zip(allowed, ends, strict=True):
                group = self._group(queue, queue.sharing(way), ends_s, energy_j)
                best = self._estimated[queue]
                if best is None or self._problem.weight(group) < self._problem.weight(best):
                    self._estimated[queue] = group
        return [self._estimated[queue] for queue in queues]

    def predicted(self, queues: Iterable[GpuQueue]) -> list[FleetGroup | None]:
        """Predict queues, each in the way that is estimated better, or else in both."""
        every = list(queues)
        new = [each for each in dict.fromkeys(every) if each not in self._predicted]
        self._predicted |= zip(new, answer_all(self._predict, new), strict=True)
        return [self._predicted[queue] for queue in every]

    def _predict(self, queue: GpuQueue) -> FleetGroup | None:
        estimate = self._estimated.get(queue)
        sharings = [queue.sharing(way) for mode, way in WAYS.items() if self.allows(queue, mode)]
        if estimate is not None:
            sharings = [estimate.sharing]
        elif queue.at_once < len(queue.order):
            sharings = sharings[:1]
        groups = []
        for sharing in dict.fromkeys(sharings):
            mixes = Mixes([self.jobs[kind] for kind in queue.order], self._question.predictor)
            groups.append(self.of_forecast(queue.order, forecast(mixes, sharing)))
            if self._estimator is not None:
                self._estimator.correct(queue.order, mixes)
        fitting = [each for each in groups if each is not None]
        return min(fitting, key=self._problem.weight, default=None)

    def of_forecast(self, members: Members, plan: Forecast) -> FleetGroup | None:
        """Return the group of a forecast of `members`; None: they do not fit.

        For throughput, all jobs are taken to be equally long alone.
        """
        question, level = self._question, self._question.level
        queue = GpuQueue(members, most_at_once(plan.sharing, len(members)))
        margin = question.conditions.memory_margin
        if memory_problem(plan.prediction, question.gpu, margin) or not self._host_holds(queue):
            return None
        if self._problem.objective.in_seconds and plan.ends_s is not None:
            ends_s = tuple(end_s.at(level) for end_s in plan.ends_s)
        else:
            ends_s = (len(members) / throughput(plan.prediction, level),) * len(members)
        energy_j = None if plan.energy_j is None else plan.energy_j.at(level)
        return self._group(queue, plan.sharing, ends_s, energy_j)

    def _group(
        self, queue: GpuQueue, sharing: Sharing, ends_s: tuple[float, ...], energy_j: float | None
    ) -> FleetGroup:
        gpus = max(self.jobs[kind].gpus for kind in queue.order)
        return FleetGroup(
            members=queue.order, pool=self.number, sharing=sharing, ends_s=ends_s,
            energy_j=None if energy_j is None else gpus * energy_j, gpus=gpus,
            in_seconds=self._problem.objective.in_seconds,
        )  # fmt: skip

    def paced_s(self, members: Members, *, predict: bool) -> list[float]:
        """Return a step of each of `members` under MPS, with its share of epoch ends, in seconds.

        Unless they are to be predicted, they are estimated if possible; a job alone is predicted.
        """
        if not predict and self._estimator is not None and len(members) > 1:
            paced_s: list[float] = self._estimator.paced_s(np.array([members]), "mps")[0].tolist()
            return paced_s
        profiles = [self.jobs[kind].profile for kind in members]
        sharing = Mps() if len(members) > 1 else Serial()
        mix = self._question.predictor.predict(profiles, sharing)
        return [job.paced_s.at(self._question.level) for job in mix.jobs]

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queues and batches that were compared, and of those predicted in full."""
        return len({*self._predicted, *self._estimated}), len(self._predicted)


class _Estimator:
    """Estimates queues with the surrogate model: medians, for screening."""

    def __init__(
        self, jobs: Sequence[Job], surrogate: SurrogatePredictor, question: Question,
        problem: Problem,
    ) -> None:  # fmt: skip
        self._surrogate, self._gpu = surrogate, question.gpu
        self._margin = question.conditions.memory_margin
        self._objective, self._summaries = problem.objective, surrogate.jobs
        work = [job.work_steps or 0.0 for job in jobs]
        self._work = np.array(work) if self._objective.in_seconds else 1 / surrogate.jobs.step_s
        self._ends = np.array([profile.end_share for profile in surrogate.profiles])
        self._steps: dict[tuple[Mode, bytes], Floats] = {}

    def fits(self, members: Members, mode: Mode) -> bool:
        """Check whether the memory of a GPU holds these jobs."""
        profiles = tuple(self._surrogate.profiles[kind] for kind in members)
        few = SurrogatePredictor(profiles, self._gpu, self._surrogate.model)
        counts = np.ones((1, len(members)), dtype=np.intp)
        return bool(few.fits(self._tenancy(mode), counts, MAX_OOM_PROBABILITY, self._margin)[0])

    def outcomes(
        self, queues: Sequence[GpuQueue], mode: Mode
    ) -> list[tuple[tuple[float, ...], float | None]]:
        """Estimate when the jobs of each queue end, and joules until the last one.

        Joules are None where the objective does not need them. All queues are simulated at once: in
        each turn the next job of every queue ends, and those that wait move up.
        """
        longest = max(len(queue.order) for queue in queues)
        kinds = np.full((len(queues), longest), -1)
        for row, queue in enumerate(queues):
            kinds[row, : len(queue.order)] = queue.order
        lengths = (kinds >= 0).sum(axis=1)
        most = np.minimum([queue.at_once for queue in queues], lengths)
        work = np.where(kinds >= 0, self._work[kinds], 0.0)
        left, begun, width = work.copy(), most.copy(), int(most.max())
        ends_s, (now_s, energy_j) = np.zeros(kinds.shape), np.zeros((2, len(queues)))
        while (rows := np.flatnonzero((left > 0).any(axis=1))).size:
            running = (left[rows] > 0) & (np.arange(longest) < begun[rows, None])
            columns = np.argsort(~running, axis=1, kind="stable")[:, :width]  # who runs, first
            at = rows[:, None], columns
            runs = np.take_along_axis(running, columns, axis=1)
            sets = np.where(runs, kinds[at], -1)
            paced_s = np.where(runs, self.paced_s(sets, mode), 1.0)
            seconds = np.where(runs, left[at] * paced_s, np.inf).min(axis=1)
            rest = left[at] - seconds[:, None] / paced_s
            done = runs & (rest <= DONE * work[at])
            now_s[rows] += seconds
            if self._objective.saves_energy:
                energy_j[rows] += seconds * self._power_w(sets, mode)
            ends_s[at] = np.where(done, now_s[rows, None], ends_s[at])
            left[at] = np.where(runs, np.where(done, 0.0, rest), left[at])
            begun[rows] = np.minimum(begun[rows] + done.sum(axis=1), lengths[rows])
        joules = [float(each) if self._objective.saves_energy else None for each in energy_j]
        return [(tuple(ends_s[row, : len(queue.order)].tolist()), joules[row])
                for row, queue in enumerate(queues)]  # fmt: skip

    def _power_w(self, sets: Indices, mode: Mode) -> Floats:
        """Power of the GPU while the jobs of each set run, shape (sets,); -1: no job."""
        surrogate, shape = self._surrogate, (len(sets), len(self._work) + 1)
        steps_s, added_w = np.ones(shape), np.zeros(shape)  # the last column: no job
        np.put_along_axis(steps_s, sets, self._steps_s(sets, mode), axis=1)
        added_w[:, :-1] = surrogate.added_w(self._tenancy(mode), steps_s[:, :-1])
        own_w = np.take_along_axis(added_w, sets, axis=1).sum(axis=1)
        awake_w = surrogate.model.of(surrogate.gpu).power.awake_w
        return np.asarray(np.minimum(awake_w + own_w, self._gpu.power_limit_w or np.inf))

    def _tenancy(self, mode: Mode) -> Tenancy:
        return Tenancy(whole_gpu(self._gpu), WAYS[mode])

    def paced_s(self, sets: Indices, mode: Mode) -> Floats:
        """Seconds of a step and its share of epoch ends, shape (sets, jobs); -1: no job."""
        host_s, work = self._ends.T
        return np.asarray(self._steps_s(sets, mode) * (1 + work[sets]) + host_s[sets])

    def correct(self, order: Members, mixes: Mixes) -> None:
        """Take the steps of sets of the jobs `order` that were predicted instead of estimates."""
        for (running, sharing), mix in mixes.predicted.items():
            if sharing.mode in WAYS and len(running) > 1:
                kinds = np.array([order[job] for job in running])
                ranks = np.argsort(kinds, kind="stable")
                steps_s = np.array([job.step_s.p50 for job in mix.jobs])
                self._steps[sharing.mode, kinds[ranks].tobytes()] = steps_s[ranks]

    def _steps_s(self, sets: Indices, mode: Mode) -> Floats:
        """Seconds of a step of each job of each set; equal sets are estimated once."""
        order = np.argsort(sets, axis=1, kind="stable")
        rows = np.take_along_axis(sets, order, axis=1)
        keys = [(mode, row[row >= 0].tobytes()) for row in rows]
        new = {key: at for at, key in enumerate(keys) if key not in self._steps}
        if new:
            chosen = rows[list(new.values())]
            batch = MixBatch(chosen, np.full(chosen.shape, 100.0))
            steps_s = self._surrogate.distilled.steps(self._summaries, batch, mode)
            rows_of = zip(new, steps_s, chosen, strict=True)
            self._steps |= {key: own[row >= 0] for key, own, row in rows_of}
        result = np.ones(sets.shape)
        for at, key in enumerate(keys):
            own = self._steps[key]
            result[at, order[at, -len(own) :]] = own
        return result
