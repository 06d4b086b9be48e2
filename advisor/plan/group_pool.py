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
from advisor.plan.objectives import throughput
from advisor.plan.placement import FleetGroup, FleetObjective, Problem
from advisor.plan.rules import MAX_OOM_PROBABILITY, first_broken, rules
from advisor.plan.values import Question
from advisor.prediction.mix_steps import SurrogateAnswers, SurrogatePredictor, Tenancy
from advisor.prediction.prediction import Level
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, Mps, Naive
from advisor.simulation.events import array_stretches

WAYS: dict[str, Concurrent] = {"mps": Mps(), "naive": Naive()}
"""To share a whole GPU without limits."""

MemberRows = NDArray[np.intp]
"""Members of groups of one size, a group a row, shape (groups, jobs)."""


class PredictedGroups:
    """Predicts groups with the one-GPU solver.

    Args:
        kinds: The jobs by kind; those of one kind are next to each other.
        solver: Solver of all jobs of `kinds`, in their order.
        objective: For throughput, all jobs are taken to be equally long alone.
        level: Which point of an interval counts for times and joules: the median or the upper end.
    """

    def __init__(
        self,
        kinds: Kinds,
        solver: OneGpuSolver | WholeGpuSolver,
        objective: FleetObjective,
        level: Level = "p50",
    ) -> None:
        self._kinds, self._solver, self._objective, self._level = kinds, solver, objective, level

    def group(self, members: Members) -> FleetGroup | None:
        """The best group of `members`; None where none is allowed and fits."""
        left = [list(each) for each in self._kinds.positions]
        positions = sorted((left[kind].pop(0), kind) for kind in members)
        solved = self._solver.best([position for position, _ in positions])
        if solved is None:
            return None
        energy_j = solved.energy_j
        if not self._objective.in_seconds or solved.ends_s is None:
            takes = len(members) / throughput(solved.prediction, self._level)
            ends_s = (takes,) * len(members)
        else:
            ends_s = tuple(end_s.at(self._level) for end_s in solved.ends_s)
        return FleetGroup(
            members=tuple(kind for _, kind in positions), sharing=solved.sharing,
            ends_s=ends_s, predicted=True,
            energy_j=None if energy_j is None else energy_j.at(self._level),
            in_seconds=self._objective.in_seconds,
        )  # fmt: skip


class EstimatedGroups:
    """Estimates groups by time slicing and MPS with the surrogate model; medians, for screening."""

    def __init__(
        self,
        kinds: Kinds,
        surrogate: SurrogatePredictor,
        question: Question,
        objective: FleetObjective,
    ) -> None:
        self._kinds, self._surrogate, self._gpu = kinds, surrogate, question.gpu
        self._rules = rules(question.gpu, question.conditions)
        self._margin, self._objective = question.conditions.memory_margin, objective
        sorts = [(job.user, job.isolated, job.data_parallel) for job in kinds.jobs]
        self._sorts = [sorts.index(each) for each in sorts]
        self._known_rules: dict[tuple[str, tuple[int, ...]], bool] = {}
        work = [job.work_steps or 0.0 for job in kinds.jobs]
        self._work = np.array(work) if objective.in_seconds else 1 / surrogate.jobs.step_s

    def groups(self, member_sets: Sequence[Members]) -> Iterator[FleetGroup]:
        """The best group of each of `member_sets` of two and more that fits, small ones first."""
        by_size = sorted(member_sets, key=len)
        for _, same in groupby(by_size, len):
            yield from self._best(np.array(list(same)))

    def may(self, members: Members, mode: Mode) -> bool:
        """Whether `members` may share in this way, and fit in memory."""
        alone = replace(self._surrogate.answers, profiles=tuple(
            job.profile for job in self._kinds.of(members)
        ))  # fmt: skip
        return self._allowed(members, mode) and bool(
            self._fit(alone, np.ones((1, len(members)), dtype=np.intp), mode)[0]
        )

    def _allowed(self, members: Members, mode: Mode) -> bool:
        """Whether no rule forbids it; jobs that rules cannot tell apart are checked once."""
        key = mode, tuple(sorted(self._sorts[kind] for kind in members))
        if key not in self._known_rules:
            jobs = self._kinds.of(members)
            self._known_rules[key] = first_broken(self._rules, jobs, WAYS[mode]) is None
        return self._known_rules[key]

    def _fit(self, answers: SurrogateAnswers, counts: MemberRows, mode: Mode) -> NDArray[np.bool_]:
        return answers.fits(self._tenancy(mode), counts, MAX_OOM_PROBABILITY, self._margin)

    def _best(self, member_sets: MemberRows) -> Iterator[FleetGroup]:
        counts = (member_sets[:, :, None] == np.arange(len(self._kinds.jobs))).sum(axis=1)
        modes = [mode for mode in WAYS if mode in self._surrogate.distilled.surrogates]
        fits = {mode: self._fit(self._surrogate.answers, counts, mode) for mode in modes}
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
        """Power of the GPU while all jobs of a group run, shape (groups,); NaN: not known.

        A member of -1 stands for a job that has ended.
        """
        answers, rows = self._surrogate.answers, len(member_sets)
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
        limits = np.full(member_sets.shape, 100.0)
        return self._surrogate.distilled.steps(
            self._surrogate.jobs, MixBatch(member_sets, limits), mode
        )


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
        ordered = kinds.together
        alike = all_kinds(ordered)

        def predicted(solver: OneGpuSolver | WholeGpuSolver) -> PredictedGroups:
            return PredictedGroups(alike, solver, problem.objective, question.level)

        self._sources = {
            name: predicted(WholeGpuSolver(ordered, question, way)) for name, way in WAYS.items()
        }
        self.thorough = predicted(OneGpuSolver(ordered, question))
        self._estimated: dict[Members, FleetGroup | None] = {}
        self._ways: dict[tuple[Members, str], FleetGroup | None] = {}
        self._best: dict[Members, FleetGroup] = {}

    @property
    def predicted(self) -> int:
        """Number of sets of jobs that were predicted."""
        return len(self._predicted)

    @property
    def member_sets(self) -> int:
        """Number of sets of jobs that were predicted or estimated."""
        return len(self._predicted | set(self._estimated))

    @property
    def _predicted(self) -> set[Members]:
        return {members for members, _ in self._ways}

    @property
    def groups(self) -> list[FleetGroup]:
        """All predicted groups."""
        return [group for group in self._ways.values() if group is not None]

    @property
    def has_estimates(self) -> bool:
        """Whether a surrogate model can estimate thousands of sets of jobs."""
        return self._estimates is not None

    def best(self, members: Members) -> FleetGroup | None:
        """The lightest predicted group of `members`; None where none is known."""
        return self._best.get(members)

    def under(self, members: Members, way: str) -> FleetGroup | None:
        """The predicted group of `members` that shares in the way `way`; None: none is known."""
        return self._ways.get((members, way))

    def estimates(self, member_sets: Iterable[Members]) -> dict[Members, FleetGroup]:
        """The best known group of each of `member_sets` that fits.

        Without a surrogate model all are predicted, while there is time.
        """
        asked = list(dict.fromkeys(member_sets))
        if self._estimates is None:
            return {members: group for members in asked if (group := self.predict(members))}
        new = [
            members
            for members in asked
            if len(members) > 1 and members not in self._best and members not in self._estimated
        ]
        self._estimated |= dict.fromkeys(new)
        self._estimated |= {group.members: group for group in self._estimates.groups(new)}
        found = (
            (members, self._best.get(members) or self._estimated.get(members)) for members in asked
        )
        return {members: group for members, group in found if group is not None}

    def estimated(self, member_sets: Sequence[Members]) -> list[FleetGroup]:
        """The best known groups of `member_sets`, those that do not fit split into single jobs."""
        known = self.estimates(member_sets)
        parts = (
            [members] if members in known else [(kind,) for kind in members]
            for members in member_sets
        )
        return [known.get(part) or self._best[part] for some in parts for part in some]

    def alone(self, kind: int) -> FleetGroup | None:
        """A job alone, whether there is time or not; None where it does not fit."""
        members = (kind,)
        if members not in self._best and (group := self._sources["mps"].group(members)):
            self._ways[members, "mps"] = self._best[members] = group
        return self._best.get(members)

    def predict(self, members: Members, ways: Sequence[str] = ()) -> FleetGroup | None:
        """Predict the lightest group of `members`; None where none fits, or time is up.

        The ways to share in `ways` are tried; without any, those that seem best.
        """
        for way in ways or self._promising(members):
            if len(members) > 1 and (members, way) not in self._ways and self.in_time():
                self._ways[members, way] = self._sources[way].group(members)
                self._compare(self._ways[members, way])
        if members not in self._best:
            self._estimated[members] = None
        return self._best.get(members)

    def offer(self, group: FleetGroup) -> None:
        """Add a predicted group that was found elsewhere."""
        self._ways[group.members, str(group.sharing)] = group
        self._compare(group)

    def _compare(self, group: FleetGroup | None) -> None:
        """Keep the lightest group of each set of members."""
        known = None if group is None else self._best.get(group.members)
        if group is not None and (
            known is None or self._problem.weight(group) < self._problem.weight(known)
        ):
            self._best[group.members] = group

    def may(self, members: Members) -> bool:
        """Whether `members` may share a GPU under MPS, and has the memory to."""
        if self._estimates is not None:
            return self._estimates.may(members, "mps")
        return self.predict(members, ["mps"]) is not None

    def every_member_set(self, most: int) -> list[Members] | None:
        """All sets of jobs that fit on a GPU, each predicted; None where they exceed `most`.

        More jobs never take less memory, so supersets of a set that does not fit are skipped.
        """
        found: list[Members] = []
        smaller: set[Members] = {(kind,) for kind in range(len(self._kinds.jobs))}
        for size in range(2, min(MOST_TOGETHER, sum(self._problem.counts)) + 1):
            larger = self._all_larger(smaller, size, most - len(found))
            if larger is None:
                return None
            for members in larger:
                self.predict(members, list(WAYS))
            if not self.in_time():
                return None
            smaller = {members for members in larger if members in self._best}
            found += smaller
        return found

    def _all_larger(self, smaller: set[Members], size: int, most: int) -> list[Members] | None:
        found = []
        for members in combinations_with_replacement(range(len(self._kinds.jobs)), size):
            rest = (members[:at] + members[at + 1 :] for at in range(size))
            if self._kinds.allows(members) and all(each in smaller for each in rest):
                found.append(members)
                if len(found) > most:
                    return None
        return found

    def _promising(self, members: Members) -> list[str]:
        """The ways to share that seem best, in the order in which to try them."""
        estimate = self._estimated.get(members)
        if estimate is None:
            return list(WAYS)
        return [name for name, sharing in WAYS.items() if sharing == estimate.sharing]
