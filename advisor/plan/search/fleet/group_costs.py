"""Costs of groups of jobs on one GPU: estimated for thousands of groups, predicted for a few."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpu_partition import whole_gpu
from advisor.plan.objectives.pace import throughput
from advisor.plan.recommendation import Question
from advisor.plan.rules import MAX_OOM_PROBABILITY, first_broken, rules
from advisor.plan.search.fleet.placement import FleetGroup, FleetObjective
from advisor.plan.search.job_sets import Kinds, Members
from advisor.plan.search.proposals import OneGpuSolver, WholeGpuSolver
from advisor.prediction.interval import Level
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.surrogate_answers import SurrogateAnswers, SurrogatePredictor, Tenancy
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, Mps, Naive
from advisor.timeline.waiting_jobs import array_stretches

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
