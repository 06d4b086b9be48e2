"""Plans for more jobs than one exact search can hold, or for several equal GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from statistics import fmean
from time import monotonic

from advisor.hardware.catalogue import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidates import Candidate, Forecaster, as_asked
from advisor.plan.cap_choice import cap_choices
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.objectives import OBJECTIVES, rankable_by
from advisor.plan.objectives.objective import Objective
from advisor.plan.recommendation import Forecast, Question, Standing
from advisor.plan.rules import (
    check_each_fits,
    refuse_protected,
)
from advisor.plan.search.fleet.fleet_search import Clock, FleetSearchResult, FleetSolver
from advisor.plan.search.fleet.placement import PlacedGroup, Problem
from advisor.plan.search.job_sets import Kinds, kinds
from advisor.prediction.interval import LEVELS, Interval, all_known, around
from advisor.prediction.power import idle_power_w
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import Serial
from advisor.sharing.in_turn import in_turn
from advisor.sharing.traversal import relabelled
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """What one GPU runs.

    Attributes:
        number: Number of the GPU, from 0.
        forecast: Forecast for the jobs of `candidate`, from the first step to the last.
    """

    number: int
    candidate: Candidate
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A plan for many jobs on equal GPUs, and how good it is.

    Attributes:
        on: The plan of each GPU that runs a job.
        ranked_by: The objective of the search; another than asked for where that cannot be
            computed, and then `note` says why.
        search: What the search looked at, and how much better a plan could be.
        serial_s: Seconds if every GPU ran one job at a time, longest jobs first; None: the length
            of a job is not known.
        idle_power_w: Power of a GPU on which nothing runs; None: not measured.
    """

    gpu: Gpu
    jobs: tuple[Job, ...]
    terms: FleetTerms
    ranked_by: ObjectiveName
    note: str | None
    on: tuple[GpuPlan, ...]
    search: FleetSearchResult
    serial_s: float | None
    idle_power_w: float | None
    standing: Standing = field(default_factory=Standing)

    @property
    def _gpu_ends_s(self) -> list[Interval] | None:
        """Seconds until the last job of each used GPU ends; None where a length is not known."""
        return all_known(each.forecast.makespan_interval_s for each in self.on)

    @property
    def makespan_s(self) -> Interval | None:
        """Seconds until the last job ends; None where a job's length is not known."""
        if (ends_s := self._gpu_ends_s) is None:
            return None
        return around([max(each.at(level) for each in ends_s) for level in LEVELS])

    @property
    def ends_s(self) -> tuple[Interval, ...] | None:
        """Seconds until each job ends, in the order asked for; None where a length is not known."""
        ends_s: dict[int, Interval] = {}
        for each in self.on:
            if each.forecast.ends_s is None:
                return None
            ends_s.update(zip(each.candidate.jobs, each.forecast.ends_s, strict=True))
        return tuple(ends_s[number] for number in sorted(ends_s))

    @property
    def mean_completion_s(self) -> float | None:
        return None if self.ends_s is None else fmean(each.p50 for each in self.ends_s)

    @property
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that miss their deadlines, judged at the level asked for."""
        found = [
            each.candidate.jobs[at]
            for each in self.on
            for at in each.forecast.late(self.terms.level)
        ]
        return tuple(sorted(found)) if self.ends_s is not None else ()

    @property
    def energy_j(self) -> Interval | None:
        """Joules of all GPUs, idle ones too, until the last job ends; None where not measured."""
        ends_s, idle_w = self._gpu_ends_s, self.idle_power_w
        used_j = all_known(each.forecast.energy_j for each in self.on)
        if ends_s is None or idle_w is None or used_j is None:
            return None
        totals = []
        for level in LEVELS:
            held_s = [each.at(level) for each in ends_s]
            idle_s = self.terms.gpus * max(held_s) - sum(held_s)
            totals.append(sum(each.at(level) for each in used_j) + idle_s * idle_w)
        return Interval(*totals)


def plan_fleet(
    jobs: Sequence[Job], gpu: Gpu, predictor: Predicts, terms: FleetTerms, clock: Clock = monotonic
) -> FleetPlan:
    """The best plan for `jobs` on equal GPUs of the model `gpu` that is found in time.

    Raises:
        InvalidInput: A job is protected.
        NothingFits: A job is too big for a GPU, even alone.
    """
    refuse_protected(jobs)
    ends_s = clock() + terms.limit_s
    asked = CachingPredictor(predictor)
    serial = forecast(Mixes(jobs, asked), Serial())
    check_each_fits(serial.prediction, gpu, terms.conditions)
    ranked_by, note = rankable_by([serial], terms.objective)
    objective = OBJECTIVES[ranked_by]
    distinct = kinds(jobs)
    problem = _problem(distinct, objective, terms.gpus, asked)
    question = Question(
        gpu=gpu, predictor=asked, objective=objective.within_group or objective.name,
        conditions=terms.conditions, level=terms.level,
    )  # fmt: skip
    found = FleetSolver(distinct, problem, question, ends_s - clock(), clock).best()
    plan = FleetPlan(
        gpu=gpu, jobs=tuple(jobs), terms=terms, ranked_by=objective.name, note=note, search=found,
        on=_gpu_plans(jobs, _candidates(found.plan, distinct), asked),
        serial_s=_one_by_one_s(jobs, terms.gpus), idle_power_w=problem.idle_power_w,
    )  # fmt: skip
    may_cap = terms.conditions.power_caps and plan.energy_j is not None
    return _with_caps(plan, question) if may_cap else plan


def _with_caps(found: FleetPlan, question: Question) -> FleetPlan:
    """`found` with power caps that save most joules in all, chosen for one GPU after another.

    A job that keeps its deadline without caps must keep it under them. The predictor of `question`
    is one without a cap.
    """

    def joules(plan: FleetPlan) -> float:
        assert plan.energy_j is not None, "a cap changes how much is used, not whether it is known"
        return plan.energy_j.at(question.level)

    late = set(found.late)
    for at, each in enumerate(found.on):
        own = each.candidate.chosen(found.jobs)
        forecaster, free = Forecaster(own, question), as_asked(len(own), each.candidate.sharing)
        tried = [found]
        for cap_w in cap_choices(found.gpu):
            under_cap = forecaster.forecast(replace(free, power_cap_w=cap_w))
            assert isinstance(under_cap, Forecast), "a cap takes no memory"
            candidate = replace(each.candidate, power_cap_w=cap_w)
            here = replace(each, candidate=candidate, forecast=under_cap)
            tried.append(replace(found, on=(*found.on[:at], here, *found.on[at + 1 :])))
        found = min((each for each in tried if set(each.late) <= late), key=joules)
    return found


def _gpu_plans(
    jobs: Sequence[Job], candidates: Mapping[int, Candidate], predictor: Predicts
) -> tuple[GpuPlan, ...]:
    """The forecast of each of `candidates`, by GPU number."""
    return tuple(
        GpuPlan(number, each, forecast(Mixes(each.chosen(jobs), predictor), each.sharing))
        for number, each in candidates.items()
    )


def _problem(distinct: Kinds, objective: Objective, gpus: int, predictor: Predicts) -> Problem:
    jobs = distinct.jobs
    ones = (1.0,) * len(jobs)
    alone_s = tuple((job.work_steps or 0.0) * job.profile.step_s for job in jobs)
    least_s = tuple(_least_s(job, predictor) for job in jobs)
    return Problem(
        objective=objective, gpus=gpus, counts=distinct.counts,
        alone_s=alone_s if objective.in_seconds else ones,
        least_s=least_s if objective.in_seconds else ones,
        deadlines_s=tuple(job.deadline_s for job in jobs),
        idle_power_w=idle_power_w([job.profile for job in jobs]),
    )  # fmt: skip


def _least_s(job: Job, predictor: Predicts) -> float:
    """Seconds that `job` takes alone, as predicted."""
    alone = predictor.predict([job.profile], Serial()).jobs[0]
    return (job.work_steps or 0.0) * alone.step_s.p50


def _candidates(plan: Sequence[PlacedGroup], distinct: Kinds) -> dict[int, Candidate]:
    """The candidate that each GPU of `plan` runs, by GPU number."""
    left = [list(positions) for positions in distinct.positions]
    named: dict[int, list[tuple[PlacedGroup, list[int]]]] = {}
    for each in sorted(plan, key=lambda placed: (placed.gpu, placed.start_s)):
        numbers = [left[kind].pop(0) + 1 for kind in each.group.members]
        named.setdefault(each.gpu, []).append((each, numbers))
    return {gpu: _candidate(groups) for gpu, groups in named.items()}


def _candidate(groups: Sequence[tuple[PlacedGroup, list[int]]]) -> Candidate:
    own = sorted(number for _, numbers in groups for number in numbers)
    renamed = [
        group
        for placed, numbers in groups
        for group in relabelled(placed.group.sharing, [own.index(n) + 1 for n in numbers])
    ]
    return Candidate(jobs=tuple(own), sharing=in_turn(renamed))


def _one_by_one_s(jobs: Sequence[Job], gpus: int) -> float | None:
    steps = all_known(job.work_steps for job in jobs)
    if steps is None:
        return None
    free_s = [0.0] * gpus
    alone = (work * job.profile.step_s for work, job in zip(steps, jobs, strict=True))
    for alone_s in sorted(alone, reverse=True):
        heapreplace(free_s, free_s[0] + alone_s)
    return max(free_s)
