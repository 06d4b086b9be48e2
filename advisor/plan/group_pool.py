"""Predictions and estimates of groups of jobs, each computed once, for the search over fleets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, groupby

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.partition import whole_gpu
from advisor.plan.candidates import OneGpuSolver, WholeGpuSolver
from advisor.plan.job_sets import Kinds, Members
from advisor.plan.job_sets import kinds as all_kinds
from advisor.plan.objectives import Objective, throughput
from advisor.plan.placement import FleetGroup, Problem
from advisor.plan.rules import MAX_OOM_PROBABILITY, first_broken, rules
from advisor.plan.values import Question
from advisor.prediction.mix_steps import SurrogatePredictor, Tenancy
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, Mps, Naive
from advisor.simulation.events import array_stretches

WAYS: dict[str, Concurrent] = {"mps": Mps(), "naive": Naive()}
"""To share a whole GPU without limits."""

MemberRows = NDArray[np.intp]
"""Members of groups of one size, a group a row, shape (groups, jobs)."""


class EstimatedGroups:
    """Estimates groups by time slicing and MPS with the surrogate model; medians, for screening."""

    def __init__(
        self,
        kinds: Kinds,
        surrogate: SurrogatePredictor,
        question: Question,
        objective: Objective,
    ) -> None:
        self._kinds, self._surrogate, self._gpu = kinds, surrogate, question.gpu
        self._rules = rules(question.gpu, question.conditions)
        self._margin, self._objective = question.conditions.memory_margin, objective
        sorts = [(job.user, job.isolated, job.data_parallel) for job in kinds.jobs]
        self._sorts = [sorts.index(each) for each in sorts]
        self._obeys: dict[tuple[str, tuple[int, ...]], bool] = {}
        work = [job.work_steps or 0.0 for job in kinds.jobs]
        self._work = np.array(work) if objective.in_seconds else 1 / surrogate.jobs.step_s

    def groups(self, member_sets: Sequence[Members]) -> Iterator[FleetGroup]:
        """Yield the best group of each of `member_sets`, of two and more, small ones first."""
        for _, same in groupby(sorted(member_sets, key=len), len):
            yield from self._best(np.array(list(same)))

    def may(self, members: Members, mode: Mode) -> bool:
        """Check whether `members` may share in this way, and fit in memory."""
        profiles = tuple(job.profile for job in self._kinds.of(members))
        answers = replace(self._surrogate, profiles=profiles)
        ones = np.ones((1, len(members)), dtype=np.intp)
        return self._allowed(members, mode) and bool(self._fit(answers, ones, mode)[0])

    def _allowed(self, members: Members, mode: Mode) -> bool:
        """Whether no rule forbids it; jobs that rules cannot tell apart are checked once."""
        key = mode, tuple(sorted(self._sorts[kind] for kind in members))
        if key not in self._obeys:
            jobs = self._kinds.of(members)
            self._obeys[key] = first_broken(self._rules, jobs, WAYS[mode]) is None
        return self._obeys[key]

    def _fit(
        self, answers: SurrogatePredictor, counts: MemberRows, mode: Mode
    ) -> NDArray[np.bool_]:
        return answers.fits(self._tenancy(mode), counts, MAX_OOM_PROBABILITY, self._margin)

    def _best(self, member_sets: MemberRows) -> Iterator[FleetGroup]:
        counts = (member_sets[:, :, None] == np.arange(len(self._kinds.jobs))).sum(axis=1)
        modes = [mode for mode in WAYS if mode in self._surrogate.distilled.surrogates]
        fits = {mode: self._fit(self._surrogate, counts, mode) for mode in modes}
        outcomes = {mode: self._outcomes(member_sets, mode) for mode in modes}
        for row, kinds in enumerate(member_sets):
            members = tuple(map(int, kinds))
            allowed = [mode for mode in modes if fits[mode][row] and self._allowed(members, mode)]
            if allowed:
                mode = min(allowed, key=lambda each: float(outcomes[each][0][row].max()))
                ends_s, energy_j = (each[row] for each in outcomes[mode])
                yield FleetGroup(
                    members=members, sharing=WAYS[mode], ends_s=tuple(map(float, ends_s)),
                    energy_j=None if np.isnan(energy_j) else float(energy_j), predicted=False,
                    in_seconds=self._objective.in_seconds,
                )  # fmt: skip

    def _outcomes(self, member_sets: MemberRows, mode: Mode) -> tuple[Floats, Floats]:
        """Ends of the jobs of each group that starts at once, and joules until the last one.

        Shapes (groups, jobs) and (groups,); joules are NaN where the objective does not need them.
        """
        ends_s, energy_j = np.zeros(member_sets.shape), np.full(len(member_sets), np.nan)
        if not self._objective.in_seconds:
            alone_s = self._surrogate.jobs.step_s[member_sets]
            speeds = alone_s / self._steps_s(member_sets, mode)
            return ends_s + (member_sets.shape[1] / speeds.sum(axis=1))[:, None], energy_j
        if self._objective.saves_energy:
            energy_j[:] = 0.0
        for at, running, seconds in array_stretches(
            self._work[member_sets],
            lambda at, running: self._steps_s(np.where(running, member_sets[at], -1), mode),
        ):
            ends_s[at] += np.where(running, seconds[:, None], 0.0)
            if self._objective.saves_energy:
                left = np.where(running, member_sets[at], -1)
                energy_j[at] += seconds * self._power_w(left, mode)
        return ends_s, energy_j

    def _power_w(self, member_sets: MemberRows, mode: Mode) -> Floats:
        """Power of the GPU while a group runs, shape (groups,); NaN: unknown. -1: a job ended."""
        answers, rows = self._surrogate, len(member_sets)
        steps_s = np.ones((rows, len(self._kinds.jobs) + 1))  # the last one of those that ended
        np.put_along_axis(steps_s, member_sets, self._steps_s(member_sets, mode), axis=1)
        added_w = np.zeros(steps_s.shape)
        added_w[:, :-1] = answers.added_w(self._tenancy(mode), steps_s[:, :-1])
        own_w = np.take_along_axis(added_w, member_sets, axis=1).sum(axis=1)
        limit_w = self._gpu.power_limit_w or np.inf
        return np.asarray(np.minimum(answers.model.of(answers.gpu).power.awake_w + own_w, limit_w))

    def _tenancy(self, mode: Mode) -> Tenancy:
        return Tenancy(whole_gpu(self._gpu), WAYS[mode])

    def _steps_s(self, member_sets: MemberRows, mode: Mode) -> Floats:
        batch = MixBatch(member_sets, np.full(member_sets.shape, 100.0))
        return self._surrogate.distilled.steps(self._surrogate.jobs, batch, mode)


# Jobs in a group at most: what was ever measured together.
MOST_TOGETHER = 8

InTime = Callable[[], bool]
"""Whether there is time left."""


class GroupPool:
    """Groups predicted so far, and estimates for screening.

    Nothing more is predicted once `in_time` answers no.
    """

    def __init__(self, kinds: Kinds, problem: Problem, question: Question, in_time: InTime) -> None:
        self._kinds, self._problem, self.in_time = kinds, problem, in_time
        surrogate = question.predictor.surrogate([job.profile for job in kinds.jobs])
        self._estimates = None
        if surrogate is not None:
            self._estimates = EstimatedGroups(kinds, surrogate, question, problem.objective)
        jobs = [job for job, count in zip(kinds.jobs, kinds.counts, strict=True)
                for _ in range(count)]  # fmt: skip
        self._positions, self._level = all_kinds(jobs).positions, question.level
        self._solvers = {name: WholeGpuSolver(jobs, question, way) for name, way in WAYS.items()}
        self._thorough = OneGpuSolver(jobs, question)
        self._estimated: dict[Members, FleetGroup | None] = {}
        self._ways: dict[tuple[Members, str], FleetGroup | None] = {}
        self._best: dict[Members, FleetGroup] = {}

    def solve(self, members: Members, way: str | None = None) -> FleetGroup | None:
        """Predict the best group of `members` that shares in a way, else in the best way.

        None where none is allowed and fits. For throughput, all jobs are taken to be equally long
        alone.
        """
        in_seconds, level = self._problem.objective.in_seconds, self._level
        left = [list(each) for each in self._positions]
        positions = sorted((left[kind].pop(0), kind) for kind in members)
        solver = self._solvers[way] if way else self._thorough
        plan = solver.best([position for position, _ in positions])
        if plan is None:
            return None
        if not in_seconds or plan.ends_s is None:
            ends_s = (len(members) / throughput(plan.prediction, level),) * len(members)
        else:
            ends_s = tuple(end_s.at(level) for end_s in plan.ends_s)
        return FleetGroup(
            members=tuple(kind for _, kind in positions), sharing=plan.sharing,
            ends_s=ends_s, predicted=True, in_seconds=in_seconds,
            energy_j=None if plan.energy_j is None else plan.energy_j.at(level),
        )  # fmt: skip

    @property
    def predicted(self) -> set[Members]:
        """The sets of jobs that were predicted."""
        return {members for members, _ in self._ways}

    @property
    def member_sets(self) -> set[Members]:
        """The sets of jobs that were predicted or estimated."""
        return self.predicted | set(self._estimated)

    @property
    def groups(self) -> list[FleetGroup]:
        """All predicted groups."""
        return [group for group in self._ways.values() if group is not None]

    @property
    def has_estimates(self) -> bool:
        """Whether a surrogate model can estimate thousands of sets of jobs."""
        return self._estimates is not None

    def best(self, members: Members) -> FleetGroup | None:
        """Return the lightest predicted group of `members`; None: not predicted."""
        return self._best.get(members)

    def under(self, members: Members, way: str) -> FleetGroup | None:
        """Return the predicted group of `members` that shares in the way `way`; None: none."""
        return self._ways.get((members, way))

    def estimates(self, member_sets: Iterable[Members]) -> dict[Members, FleetGroup]:
        """Return the best group so far of each of `member_sets` that fits, estimating new ones.

        Without a surrogate model all are predicted, while there is time.
        """
        wanted = list(dict.fromkeys(member_sets))
        if self._estimates is None:
            return {members: group for members in wanted if (group := self.predict(members))}
        new = [
            members
            for members in wanted
            if len(members) > 1 and members not in self._best and members not in self._estimated
        ]
        self._estimated |= dict.fromkeys(new)
        self._estimated |= {group.members: group for group in self._estimates.groups(new)}
        best = {members: self._best.get(members) or self._estimated.get(members)
                for members in wanted}  # fmt: skip
        return {members: group for members, group in best.items() if group is not None}

    def estimated(self, member_sets: Sequence[Members]) -> list[FleetGroup]:
        """Return the best groups of `member_sets`; those that do not fit run one by one."""
        groups = self.estimates(member_sets)
        parts = (
            [members] if members in groups else [(kind,) for kind in members]
            for members in member_sets
        )
        return [groups.get(part) or self._best[part] for some in parts for part in some]

    def alone(self, kind: int) -> FleetGroup | None:
        """Predict a job alone, whether there is time or not; None where it does not fit."""
        members = (kind,)
        if members not in self._best and (group := self.solve(members, "mps")):
            self._ways[members, "mps"] = self._best[members] = group
        return self._best.get(members)

    def predict(self, members: Members, ways: Sequence[str] = ()) -> FleetGroup | None:
        """Predict the lightest group of `members`; None where none fits, or time is up.

        The ways to share in `ways` are tried; without any, those that seem best.
        """
        if not ways:
            estimate = self._estimated.get(members)
            ways = [name for name, way in WAYS.items() if not estimate or way == estimate.sharing]
        for way in ways:
            if len(members) > 1 and (members, way) not in self._ways and self.in_time():
                group = self._ways[members, way] = self.solve(members, way)
                self._keep_lighter(group)
        if members not in self._best:
            self._estimated[members] = None
        return self._best.get(members)

    def offer(self, group: FleetGroup) -> None:
        """Add a predicted group from elsewhere."""
        self._ways[group.members, str(group.sharing)] = group
        self._keep_lighter(group)

    def _keep_lighter(self, group: FleetGroup | None) -> None:
        """Keep the lightest group of each set of members."""
        if group is not None:
            best = self._best.setdefault(group.members, group)
            if self._problem.weight(group) < self._problem.weight(best):
                self._best[group.members] = group

    def may(self, members: Members) -> bool:
        """Check whether `members` may share a GPU under MPS, and fit in memory."""
        if self._estimates is not None:
            return self._estimates.may(members, "mps")
        return self.predict(members, ["mps"]) is not None

    def predict_all(self, most: int) -> bool:
        """Predict all sets of jobs that fit on a GPU; False: they exceed `most`, or time is up.

        More jobs never take less memory, so supersets of a set that does not fit are skipped.
        """
        left = most
        smaller: set[Members] = {(kind,) for kind in range(len(self._kinds.jobs))}
        for size in range(2, min(MOST_TOGETHER, sum(self._problem.counts)) + 1):
            larger = []
            for members in combinations_with_replacement(range(len(self._kinds.jobs)), size):
                rest = (members[:at] + members[at + 1 :] for at in range(size))
                if self._kinds.allows(members) and all(each in smaller for each in rest):
                    larger.append(members)
                    if len(larger) > left:
                        return False
            for members in larger:
                self.predict(members, list(WAYS))
            if not self.in_time():
                return False
            smaller = {members for members in larger if members in self._best}
            left -= len(smaller)
        return True
