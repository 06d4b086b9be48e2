"""Plans for more jobs than one exact search can hold, or for several equal GPUs."""

from collections.abc import Sequence
from time import monotonic

from advisor.hardware.catalogue import Gpu
from advisor.plan.candidates import Candidate
from advisor.plan.fleet_plan import FleetPlan, FleetTerms, GpuPlan
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.memory_limits import check_each_fits
from advisor.plan.objectives import ObjectiveName
from advisor.plan.objectives.fleet_objective import FleetObjective
from advisor.plan.objectives.pace import Throughput
from advisor.plan.objectives.table import OBJECTIVES, possible
from advisor.plan.power_caps import with_caps
from advisor.plan.recommendation import Forecast, Predicts
from advisor.plan.search.candidate_space import Question
from advisor.plan.search.fleet.estimates import WAYS, EstimatedGroups, GroupSources, PredictedGroups
from advisor.plan.search.fleet.fleet_groups import Kinds, PlacedGroup, kinds
from advisor.plan.search.fleet.fleet_search import Clock, FleetSolver
from advisor.plan.search.fleet.placement import Problem
from advisor.plan.search.one_gpu_search import OneGpuSolver, WholeGpuSolver
from advisor.sharing import Serial
from advisor.sharing.traversal import in_turn, relabelled
from advisor.timeline.outcome import idle_power_w
from advisor.workload.job import Job


def plan_fleet(
    jobs: Sequence[Job], gpu: Gpu, predictor: Predicts, terms: FleetTerms, clock: Clock = monotonic
) -> FleetPlan:
    """The best plan for `jobs` on equal GPUs of the model `gpu` that is found in time.

    Raises:
        NothingFits: A job is too big for a GPU, even alone.
    """
    ends_s = clock() + terms.limit_s
    asked = CachingPredictor(predictor)
    serial = forecast(Mixes(jobs, asked), Serial())
    check_each_fits(serial.prediction, gpu, terms.conditions)
    objective, note = _ranked_by(serial, terms.objective)
    distinct = kinds(jobs)
    problem = _problem(distinct, objective, terms.gpus, asked)
    question = Question(
        gpu=gpu, predictor=asked, objective=objective.within_group or objective.name,
        conditions=terms.conditions, level=terms.level,
    )  # fmt: skip
    quick = asked.quick([job.profile for job in distinct.jobs])
    ordered = distinct.together
    alike = kinds(ordered)
    sources = GroupSources(
        EstimatedGroups(distinct, quick, gpu, terms.conditions, objective) if quick else None,
        {
            name: PredictedGroups(
                alike, WholeGpuSolver(ordered, question, way), objective, terms.level
            )
            for name, way in WAYS.items()
        },
        PredictedGroups(alike, OneGpuSolver(ordered, question), objective, terms.level),
    )
    found = FleetSolver(distinct, problem, sources, ends_s - clock(), clock).best()
    plan = FleetPlan(
        gpu=gpu, jobs=tuple(jobs), terms=terms, ranked_by=objective.name, note=note, search=found,
        on=tuple(
            GpuPlan(number, each, forecast(Mixes(each.chosen(jobs), asked), each.sharing))
            for number, each in _candidates(found.plan, distinct).items()
        ),
        serial_s=_one_by_one_s(jobs, terms.gpus), idle_power_w=problem.idle_power_w,
    )  # fmt: skip
    may_cap = terms.conditions.power_caps and plan.energy_j is not None
    return with_caps(plan, question) if may_cap else plan


def _ranked_by(serial: Forecast, asked: ObjectiveName) -> tuple[FleetObjective, str | None]:
    """What plans are searched for by, and why where it is not what was `asked` for."""
    ranked_by, note = possible([serial], asked)
    found = OBJECTIVES[ranked_by]
    return (found if isinstance(found, FleetObjective) else Throughput()), note


def _problem(distinct: Kinds, objective: FleetObjective, gpus: int, predictor: Predicts) -> Problem:
    jobs = distinct.jobs
    ones = (1.0,) * len(jobs)
    known = objective.in_seconds
    alone_s = tuple((job.work_steps or 0.0) * job.profile.step_s for job in jobs)
    return Problem(
        objective=objective, gpus=gpus, counts=distinct.counts, alone_s=alone_s if known else ones,
        least_s=tuple(_least_s(job, predictor) for job in jobs) if known else ones,
        deadlines_s=tuple(job.deadline_s for job in distinct.jobs),
        idle_power_w=idle_power_w([job.profile for job in distinct.jobs]),
    )  # fmt: skip


def _least_s(job: Job, predictor: Predicts) -> float:
    """What `job` takes alone, at the batch size at which it takes least."""
    alone = ((each, predictor.predict([each.profile], Serial()).jobs[0]) for each in job.variants)
    return min((each.work_steps or 0.0) * answer.step_s.p50 for each, answer in alone)


def _candidates(plan: Sequence[PlacedGroup], distinct: Kinds) -> dict[int, Candidate]:
    """What each GPU of `plan` runs, by its number."""
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
    batch = {
        number: batch
        for placed, numbers in groups
        for number, batch in zip(numbers, placed.group.batches, strict=False)
    }
    batches = tuple(batch[number] for number in own) if len(batch) == len(own) else ()
    return Candidate(jobs=tuple(own), sharing=in_turn(renamed), batches=batches)


def _one_by_one_s(jobs: Sequence[Job], gpus: int) -> float | None:
    known = [job.work_steps * job.profile.step_s for job in jobs if job.work_steps is not None]
    if len(known) < len(jobs):
        return None
    free_s = [0.0] * gpus
    for alone_s in sorted(known, reverse=True):
        free_s[free_s.index(min(free_s))] += alone_s
    return max(free_s)
