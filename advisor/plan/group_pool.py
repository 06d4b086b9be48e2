"""Queues of jobs on a GPU: estimated by the thousand, and predicted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.hardware.partition import whole_gpu
from advisor.plan.fleet_groups import WAYS, FleetGroup, GpuQueue, Problem
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.job_sets import Members
from advisor.plan.lines import Instances
from advisor.plan.rules import MAX_OOM_PROBABILITY, broken_rule, memory_problem
from advisor.plan.values import Question
from advisor.prediction.cache import answer_all
from advisor.prediction.mix_steps import SurrogatePredictor, Tenancy
from advisor.prediction.prediction import MixPrediction
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.trace import Floats
from advisor.sharing import Mode, Mps, Serial, Sharing
from advisor.sharing.groups import most_at_once
from advisor.simulation.turns import Bools, Indices, array_stretches
from advisor.workload.job import Job
from advisor.workload.profile import Profile


class GroupPool:
    """Queues of jobs on a GPU of one pool, each estimated and predicted once.

    Attributes:
        jobs: A job of each kind, shape (kinds,), as profiled on this model of GPU.
        holds: Whether the memory of a GPU holds a job of each kind alone, same shape.
        instances: Lines of jobs on the GPU's MIG instances.
    """

    def __init__(self, number: int, problem: Problem, question: Question) -> None:
        self.number, self._problem, self._question = number, problem, question
        jobs = problem.pools[number].jobs
        self.jobs = [jobs[first] for first, *_ in problem.kinds.positions]
        surrogate = question.predictor.surrogate([job.profile for job in self.jobs])
        self._estimator = (
            None
            if surrogate is None or not surrogate.replays
            else _Estimator(self.jobs, surrogate, question, problem)
        )
        alone = [question.predictor.predict([job.profile], Serial()) for job in self.jobs]
        self.holds = [self._fits(mix) for mix in alone]
        self._held_mib = [mix.jobs[0].memory_mib for mix in alone]
        self.instances = Instances(
            self.jobs,
            question,
            problem.pools[number].idle_power_w or 0.0,
            in_seconds=problem.objective.in_seconds,
        )
        self._obeyed: dict[tuple[Mode, tuple[int, ...]], bool] = {}
        self._fitting: dict[tuple[Mode, Members], bool] = {}
        self._estimated: dict[GpuQueue, FleetGroup | None] = {}
        self._predicted: dict[GpuQueue, FleetGroup | None] = {}
        self._speeds: dict[Members, dict[int, float]] = {}

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queues and batches that were compared, and of those predicted in full."""
        return len({*self._predicted, *self._estimated}), len(self._predicted)

    def allows(self, queue: GpuQueue, mode: Mode = "mps") -> bool:
        """Check that any of the jobs that may meet are allowed to share, and fit in memory."""
        if not all(self.holds[kind] for kind in queue.order) or not self._host_holds(queue):
            return False
        if len(queue.order) == 1:
            return True
        if any(self.jobs[kind].gpus > 1 for kind in queue.order):
            return False
        if queue.at_once == 1 or queue.cut:
            return True
        if queue.at_once < len(queue.order) and self.jobs[0].profile.workload.shared_loader:
            return False  # the next job has missed batches of the loader: `rules.loader_problem`
        largest = sorted(queue.order, key=lambda kind: -self._held_mib[kind])[: queue.at_once]
        return self._obeys(queue, mode) and self._holds_all(tuple(sorted(largest)), mode)

    def _host_holds(self, queue: GpuQueue) -> bool:
        """Check the memory of the host, of which each GPU has an equal part; not measured: none."""
        pool = self._problem.pools[self.number]
        if pool.host_memory_mib is None:
            return True
        held_mib = sorted(self.jobs[kind].profile.host_memory_mib or 0.0 for kind in queue.order)
        part_mib = pool.host_memory_mib / pool.host_gpus  # for each process of a job of several
        return sum(held_mib[-queue.at_once :]) <= part_mib

    def _obeys(self, queue: GpuQueue, mode: Mode) -> bool:
        """Check that no rule forbids it; jobs that are equal for all rules are checked once."""
        ruled = sorted({self._problem.kinds.ruled_as[kind] for kind in queue.order})
        key = mode, (min(queue.at_once, len(queue.order)), *ruled)
        if key not in self._obeyed:
            first = [self.jobs[kind] for kind in ruled]
            jobs, question = [*first, *[first[0]] * (key[1][0] - len(first))], self._question
            broken = broken_rule(jobs, WAYS[mode], question.gpu, question.conditions)
            self._obeyed[key] = broken is None
        return self._obeyed[key]

    def _holds_all(self, members: Members, mode: Mode) -> bool:
        """Check that the memory of a GPU holds these jobs together."""
        if (mode, members) not in self._fitting:
            profiles = [self.jobs[kind].profile for kind in members]
            self._fitting[mode, members] = (
                self._fits(self._question.predictor.predict(profiles, WAYS[mode]))
                if self._estimator is None
                else self._estimator.fits(profiles, mode)
            )
        return self._fitting[mode, members]

    def _fits(self, mix: MixPrediction) -> bool:
        question = self._question
        return not memory_problem(mix, question.gpu, question.conditions.memory_margin)

    def estimated(self, queues: Sequence[GpuQueue]) -> list[FleetGroup | None]:
        """Estimate queues, each in its better way; None: it is not allowed.

        Without a model that estimates jobs in a partition, they are predicted.
        """
        new = [each for each in dict.fromkeys(queues) if each not in self._estimated]
        self._estimated |= {each: self.lined(each) if each.cut else None for each in new}
        if self._estimator is None:
            whole = [each for each in new if not each.cut]
            self._estimated |= zip(whole, self.predicted(whole), strict=True)
            return [self._estimated[queue] for queue in queues]
        for mode, way in WAYS.items():
            # Time-slicing can win where all jobs start at once, and where MPS is not allowed.
            allowed = [
                each
                for each in new
                if not each.cut
                and self.allows(each, mode)
                and (each.at_once >= len(each.order) or self._estimated[each] is None)
            ]
            ends = self._estimator.outcomes(allowed, mode) if allowed else []
            for queue, (ends_s, energy_j) in zip(allowed, ends, strict=True):
                group = self._group(queue.order, queue.sharing(way), ends_s, energy_j)
                better = filter(None, [self._estimated[queue], group])
                self._estimated[queue] = min(better, key=self._problem.weight)
        return [self._estimated[queue] for queue in queues]

    def lined(self, queue: GpuQueue) -> FleetGroup | None:
        """Estimate jobs in lines on instances; None: it is not allowed."""
        assert queue.cut is not None, "there are instances"
        lined = self.instances.lined(queue.order, queue.cut) if self.allows(queue) else None
        if lined is None:
            return None
        idle_w = self._problem.pools[self.number].idle_power_w or 0.0
        energy_j = lined.added_j + idle_w * max(lined.ends_s)
        return self._group(queue.order, lined.sharing, lined.ends_s, energy_j)

    def predicted(self, queues: Sequence[GpuQueue]) -> list[FleetGroup | None]:
        """Predict queues, each in the way that is estimated better, or else in both."""
        new = [each for each in dict.fromkeys(queues) if each not in self._predicted]
        self._predicted |= zip(new, answer_all(self._predict, new), strict=True)
        for queue in new:  # its steps are corrected now: estimate it again
            self._estimated.pop(queue, None)
        return [self._predicted[queue] for queue in queues]

    def _predict(self, queue: GpuQueue) -> FleetGroup | None:
        estimate = self.lined(queue) if queue.cut else self._estimated.get(queue)
        if estimate:
            sharings = [estimate.sharing]
        elif queue.cut:
            return None
        else:
            modes = [mode for mode in WAYS if self.allows(queue, mode)]
            waits = queue.at_once < len(queue.order)
            sharings = [queue.sharing(WAYS[mode]) for mode in modes[: 1 if waits else None]]
        every = [self.predict(queue.order, sharing) for sharing in dict.fromkeys(sharings)]
        return min(filter(None, every), key=self._problem.weight, default=None)

    def predict(self, members: Members, sharing: Sharing) -> FleetGroup | None:
        """Predict `members` under `sharing`; None: they do not fit.

        For throughput, all jobs are taken to be equally long alone.
        """
        mixes = Mixes([self.jobs[kind] for kind in members], self._question.predictor)
        plan, level = forecast(mixes, sharing), self._question.level
        if self._estimator is not None:
            self._estimator.correct(members, mixes)
        queue = GpuQueue(members, most_at_once(sharing, len(members)))
        if not self._fits(plan.prediction) or not self._host_holds(queue):
            return None
        ends_s = (len(members) * plan.equal_work.at(level),) * len(members)
        if self._problem.objective.in_seconds and plan.ends_s is not None:
            ends_s = tuple(end_s.at(level) for end_s in plan.ends_s)
        energy_j = None if plan.energy_j is None else plan.energy_j.at(level)
        return self._group(members, sharing, ends_s, energy_j)

    def speeds(self, kinds: Sequence[int]) -> list[float]:
        """Predict steps a second of jobs under MPS, or of one alone, shape (jobs,)."""
        members = tuple(sorted(kinds))
        if members not in self._speeds:
            profiles = [self.jobs[kind].profile for kind in members]
            sharing = Mps() if len(members) > 1 else Serial()
            mix, level = self._question.predictor.predict(profiles, sharing), self._question.level
            self._speeds[members] = {
                kind: 1 / job.paced_s.at(level) for kind, job in zip(members, mix.jobs, strict=True)
            }
        return [self._speeds[members][kind] for kind in kinds]

    def _group(
        self, members: Members, sharing: Sharing, ends_s: tuple[float, ...], energy_j: float | None
    ) -> FleetGroup:
        gpus = max(self._problem.widths[kind] for kind in members)
        return FleetGroup(
            members=members,
            pool=self.number,
            sharing=sharing,
            ends_s=ends_s,
            gpus=gpus,
            energy_j=None if energy_j is None else gpus * energy_j,
        )


class _Estimator:
    """Estimates queues with the surrogate model: medians, for screening."""

    def __init__(
        self,
        jobs: Sequence[Job],
        surrogate: SurrogatePredictor,
        question: Question,
        problem: Problem,
    ) -> None:
        self._surrogate, self._summaries = surrogate, surrogate.jobs
        self._margin = question.conditions.memory_margin
        self._saves_energy = problem.objective.saves_energy
        self._work = np.array([problem.work_s(job) / job.alone_step_s for job in jobs])
        self._ends = np.array([profile.end_share for profile in surrogate.profiles])
        self._steps: dict[tuple[Mode, bytes], Floats] = {}

    def fits(self, profiles: Sequence[Profile], mode: Mode) -> bool:
        """Check whether the memory of a GPU holds these jobs."""
        few = replace(self._surrogate, profiles=tuple(profiles))
        counts = np.ones((1, len(profiles)), dtype=np.intp)
        return bool(few.fits(self._tenancy(mode), counts, MAX_OOM_PROBABILITY, self._margin)[0])

    def outcomes(
        self, queues: Sequence[GpuQueue], mode: Mode
    ) -> list[tuple[tuple[float, ...], float | None]]:
        """Estimate when the jobs of each queue end, and joules until the last one.

        Joules are None where the objective does not need them.
        """
        longest = max(len(queue.order) for queue in queues)
        kinds = np.full((len(queues), longest), -1)
        for row, queue in enumerate(queues):
            kinds[row, : len(queue.order)] = queue.order
        at_once = np.array([min(queue.at_once, len(queue.order)) for queue in queues])
        ends_s, energy_j = np.zeros(kinds.shape), np.zeros(len(queues))

        def in_front(at: Indices, running: Bools) -> tuple[Indices, Indices]:
            """Return the columns of the jobs that run, first, and their kinds; -1: none."""
            columns = np.argsort(~running, axis=1, kind="stable")[:, : int(at_once.max())]
            runs = np.take_along_axis(running, columns, axis=1)
            return columns, np.where(runs, np.take_along_axis(kinds[at], columns, axis=1), -1)

        def paced_s(at: Indices, running: Bools) -> Floats:
            columns, sets = in_front(at, running)
            host_s, work = self._ends[sets].transpose(2, 0, 1)
            steps_s = np.ones(running.shape)
            own_s = np.where(sets < 0, 1.0, self._steps_s(sets, mode) * (1 + work) + host_s)
            np.put_along_axis(steps_s, columns, own_s, axis=1)
            return steps_s

        work = np.where(kinds >= 0, self._work[kinds], 0.0)
        for at, running, waiting, seconds in array_stretches(work, paced_s, at_once):
            ends_s[at] += np.where(running | waiting, seconds[:, None], 0.0)
            if self._saves_energy:
                energy_j[at] += seconds * self._power_w(in_front(at, running)[1], mode)
        joules = [float(each) if self._saves_energy else None for each in energy_j]
        return [
            (tuple(ends_s[row, : len(queue.order)].tolist()), joules[row])
            for row, queue in enumerate(queues)
        ]

    def _power_w(self, sets: Indices, mode: Mode) -> Floats:
        """Power of the GPU while the jobs of each set run, shape (sets,); -1: no job."""
        surrogate, shape = self._surrogate, (len(sets), len(self._work) + 1)
        steps_s, added_w = np.ones(shape), np.zeros(shape)  # the last column: no job
        np.put_along_axis(steps_s, sets, self._steps_s(sets, mode), axis=1)
        added_w[:, :-1] = surrogate.added_w(self._tenancy(mode), steps_s[:, :-1])
        own_w = np.take_along_axis(added_w, sets, axis=1).sum(axis=1)
        awake_w = surrogate.model.of(surrogate.gpu).power.awake_w
        return np.asarray(np.minimum(awake_w + own_w, surrogate.gpu.power_limit_w or np.inf))

    def _tenancy(self, mode: Mode) -> Tenancy:
        return Tenancy(whole_gpu(self._surrogate.gpu), WAYS[mode])

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
