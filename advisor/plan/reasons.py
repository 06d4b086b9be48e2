"""The resource that limits a plan, in words; plans compared; and what jobs lose to hosts."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from advisor.documents import As, Inline, Mark, in_document
from advisor.errors import InvalidInput, in_percent
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.objectives import (
    OBJECTIVES,
    cost_ratio,
    first_plan,
    holds_one,
    joint_ratio,
    known_cost,
    rankable_by,
    tied,
)
from advisor.plan.rules import broken_rule, memory_problem
from advisor.plan.values import Forecast, Outcome, Standing
from advisor.prediction.capacity import MPS_CAPACITY
from advisor.prediction.power import summed_share
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.prediction.shared_loader import (
    as_consumers,
    busy_cores,
    host_memory_mib,
    loaders,
    waits_for_loader,
)
from advisor.sharing.groups import kind_of, one_by_one, partitions, running_together, sets_in_turn
from advisor.simulation.turns import set_spans
from advisor.workload.job import Job
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.spec import Workload
from advisor.workload.store import profile_paths

Resource = Literal["GPU time", "SMs", "DRAM bandwidth", "power"]
Limit = Resource | Literal["host path", "data loader", "own instances", "MPS limits"]
# The share from which a resource counts as full. For SMs it is what training reached under MPS on
# an H200 (`advisor.prediction.capacity`); the others are choices.
FULL: dict[Resource, float] = {
    "GPU time": 0.9,
    "SMs": MPS_CAPACITY,
    "DRAM bandwidth": 0.8,
    "power": 0.95,
}
# Share of its step in the host path from which the host sets a job's pace: a choice.
HOST_BOUND = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The resources that limit the jobs of one plan; shares are 0..1, and None if not measured.

    Attributes:
        host_shares: Share of each job's predicted step that its host path takes, shape (jobs,).
        gpu_shares: Share of each job's predicted step in which the GPU works for it, shape (jobs,).
        alone: Positions of the jobs that have the GPU to themselves while they run.
        uses: Share in use of each of the GPU's measured resources, the fullest first.
        cut: MIG instances or MPS limits, if these give the jobs SMs of their own; else None.
        by_loader: Positions of the jobs whose host path is their data loader.
        cores: Mean number of host cores that the jobs at the same time keep busy.
        host_memory_mib: Memory of these jobs on the host.
    """

    host_shares: tuple[float | None, ...]
    gpu_shares: tuple[float | None, ...]
    alone: Annotated[frozenset[int], Mark.LEFT_OUT]
    uses: Mapping[Resource, float]
    memory: float
    cut: Literal["own instances", "MPS limits"] | None
    by_loader: Annotated[frozenset[int], Mark.LEFT_OUT] = frozenset()
    cores: float | None = None
    host_memory_mib: float | None = None

    @property
    def by_host(self) -> tuple[int, ...]:
        """Positions of the jobs whose pace the host path sets."""
        shares = enumerate(self.host_shares)
        return tuple(at for at, share in shares if share is not None and share >= HOST_BOUND)

    @property
    @in_document
    def of_each_job(self) -> tuple[Limit | None, ...]:
        """The resource that limits each job, shape (jobs,)."""
        return tuple(map(self.limit_of, range(len(self.host_shares))))

    @property
    @in_document
    def limit(self) -> Limit | None:
        """The resource that limits the plan as a whole; None where none is full."""
        if len(self.by_host) < len(self.host_shares):
            return self._of_gpu
        return "data loader" if self.by_loader.issuperset(self.by_host) else "host path"

    @property
    def _of_gpu(self) -> Limit | None:
        """The resource that limits the jobs not bound by their hosts; None: none is full."""
        full = (each for each, share in self.uses.items() if share >= FULL[each])
        return self.cut if self.cut == "own instances" else next(full, self.cut)

    def limit_of(self, job: int) -> Limit | None:
        """Return the resource that limits the job at the position `job`."""
        if job in self.by_host:
            return "data loader" if job in self.by_loader else "host path"
        if job in self.alone:
            return "GPU time" if (self.gpu_shares[job] or 0.0) >= FULL["GPU time"] else None
        return self._of_gpu

    def use_of(self, job: int) -> float | None:
        """Return the share in use of what limits a job, 0..1; None where that has no measure."""
        if job in self.by_host:
            return self.host_shares[job]
        if job in self.alone:
            return self.gpu_shares[job]
        return next((share for each, share in self.uses.items() if each == self._of_gpu), None)


def binding(jobs: Sequence[Job], gpu: Gpu, mix: MixPrediction) -> Binding:
    """Find the resources that limit `jobs` on `gpu`; `mix` is their prediction."""
    parts = partitions(mix.sharing, len(jobs))
    cut: Literal["own instances", "MPS limits"] | None = None
    if mix.sharing.instances:
        cut = "own instances"
    elif any(limit < 100 for part in parts for limit in part.sharing.limits):
        cut = "MPS limits"
    runs = [] if cut == "own instances" else running_together(mix.sharing, len(jobs))
    own = [job.profile for job in jobs]
    profiles = as_consumers(own, loaders(own, mix.sharing))

    def of_steps(parts_s: Sequence[float | None]) -> tuple[float | None, ...]:
        """Seconds of a part of each step alone, as shares of the step that the GPU slows."""
        return tuple(
            None if part_s is None else min(1.0, part_s / profile.step_s / answer.slowdown)
            for part_s, profile, answer in zip(parts_s, profiles, mix.jobs, strict=True)
        )

    return Binding(
        host_shares=of_steps([each.host_s and each.host_s * mix.host_stretch for each in profiles]),
        gpu_shares=of_steps([each.gpu_s for each in profiles]),
        alone=frozenset(run[0] for run in runs if len(run) == 1),
        uses=_uses(jobs, gpu, mix),
        memory=mix.memory_total_mib / mix.memory_capacity_mib,
        cut=cut,
        by_loader=frozenset(at for at, each in enumerate(profiles) if waits_for_loader(each)),
        cores=busy_cores(own, mix),
        host_memory_mib=host_memory_mib(own, mix.sharing),
    )


def _uses(jobs: Sequence[Job], gpu: Gpu, mix: MixPrediction) -> dict[Resource, float]:
    """Use of each resource: jobs that take turns fill GPU time, co-located jobs fill SMs."""
    turns = all(
        part.instance is None and part.sharing.mode in ("serial", "naive")
        for part in partitions(mix.sharing, len(jobs))
    )
    watts = mix.power_cap_w or gpu.power_limit_w
    shares: dict[Resource, float | None] = {
        "GPU time": mix.gract if turns or mix.smact is None else None,
        "SMs": None if turns else mix.smact,
        "DRAM bandwidth": _dram(jobs, mix),
        "power": mix.power_w.p50 / watts if mix.power_w and watts else None,
    }
    uses = [(each, min(1.0, share)) for each, share in shares.items() if share is not None]
    return dict(sorted(uses, key=lambda use: -use[1] / FULL[use[0]]))


def _dram(jobs: Sequence[Job], mix: MixPrediction) -> float | None:
    """Share of DRAM bandwidth in use, mean over time if all jobs take equally long alone."""
    total, sets = 0.0, sets_in_turn(mix.sharing, len(jobs))
    takes = set_spans(mix.sharing, [job.slowdown for job in mix.jobs])
    for (run, at_once), took in zip(sets, takes, strict=True):
        # A job of a queue does its work in a part of the time.
        own = [1 / (took if at_once < len(run) else mix.jobs[job].slowdown) for job in run]
        share = summed_share([jobs[job].profile for job in run], own, "dram_active")
        if share is None:
            return None
        total += share * took / sum(takes)
    return total


# Share of memory from which it is named; and the smallest difference that is not written as 0 %.
_FULL_MEMORY, SEEN = 0.9, 0.005


def slowed(starved: Sequence[tuple[str, float]]) -> str:
    """Name the jobs that are slowed, e.g. ``"bert is slowed 20x"``; of copies the worst."""
    most = {name: max(times for other, times in starved if other == name) for name, _ in starved}
    return ", ".join(f"{name} is slowed {times:.3g}x" for name, times in most.items())


def limit_in_words(mix: MixPrediction, bound: Binding) -> str:
    """Describe the resource that limits the plan, and how full the others are."""
    busy = {"GPU busy" if each == "GPU time" else each: use for each, use in bound.uses.items()}
    measured = ", ".join(f"{name} {in_percent(use)}" for name, use in busy.items())
    measured = measured or "GPU activity not measured"
    if bound.cores is not None and (mix.host_cores is not None or bound.limit == "data loader"):
        of = "" if mix.host_cores is None else f" of {mix.host_cores:g}"
        measured = f"{bound.cores:.2g}{of} cores, {measured}"
    match bound.limit:
        case "host path":
            least = min(share or 0.0 for share in bound.host_shares)
            parts = [
                f"CPU-bound: the host path takes {in_percent(least)} of a step or more ({measured})"
            ]
        case "data loader":
            parts = [f"limited by its data loader ({measured})"]
        case "own instances" if kind_of(mix.sharing) == "mig":
            parts = ["each job has its own SMs and memory"]
        case "own instances":
            parts = ["jobs on instances, some shared"]
        case None:
            parts = [f"no resource saturated ({measured})" if busy else measured]
        case limit:
            parts = [f"limited by {'the SMs' if limit == 'SMs' else limit} ({measured})"]
    if bound.by_host and bound.limit not in ("host path", "data loader"):
        parts.append(f"{named([mix.jobs[job].job for job in bound.by_host])} CPU-bound")
    if bound.memory > _FULL_MEMORY:
        parts.append(f"memory {in_percent(bound.memory)} full")
    if mix.wide_because:
        parts.append(mix.wide_because)
    if bound.cut == "own instances":
        parts.append("estimated, not confirmed on hardware")
    if mix.power_cap_w is not None:
        parts.append(f"under a power cap of {mix.power_cap_w:g} W, not measured on this GPU")
    return ", ".join(parts)


def named(jobs: Sequence[str]) -> str:
    """Join names of jobs, copies counted, e.g. ``"resnet50 x2, bert"``."""
    counts = Counter(jobs).items()
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in counts)


def compared(
    plan: Outcome, other: Outcome, name: str, objective: ObjectiveName, level: Level
) -> str:
    """Describe by how much the cost of `plan` differs from that of `other`, which has a `name`."""
    own, its = (known_cost(each, objective).at(level) for each in (plan, other))
    behind = own / its - 1 if own > its else 1 - its / own
    if abs(behind) < SEEN:
        return f"equal to {name}"
    more, measure = "more" if behind > 0 else "less", OBJECTIVES[objective].measure
    words = f"{in_percent(abs(behind))} {more} {measure} than {name}"
    return f"{words}, a tie" if tied(plan, other, objective, level) else words


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPlan:
    """One of the compared plans.

    Attributes:
        plan: Its name: how the jobs share, and a power cap.
        cost: Cost by the objective of the comparison.
        gain_over_first: Cost of the first plan over its own.
        step_over_first: Step of each job over that under the first plan, shape (jobs,).
        ties_first: Whether its cost is equal to that of the first plan within our error.
        ties_best: Whether its cost is equal to that of the best plan within our error.
        forbidden: Reason why it is not allowed; None: it is allowed.
    """

    plan: str
    forecast: Annotated[Forecast, Inline()]
    binding: Binding
    cost: Interval
    gain_over_first: Interval
    step_over_first: tuple[Interval, ...]
    ties_first: bool
    ties_best: bool
    forbidden: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Plans for the same jobs on one GPU; the others are compared with the first.

    Attributes:
        objective: The objective compared by; if another than wanted, `note` gives the reason.
        best: The plan that `recommend` puts first of those that are allowed, or else of all.
        serial: All jobs one after another; None where one of the plans is that.
    """

    gpu: Annotated[Gpu, As("key")]
    objective: ObjectiveName
    note: str | None
    plans: tuple[ComparedPlan, ...]
    best: Annotated[ComparedPlan, As("plan")]
    serial: ComparedPlan | None = None

    @property
    @in_document
    def standing(self) -> Annotated[Standing, Mark.AT_TOP]:
        return self.plans[0].forecast.standing


def compare(
    jobs: Sequence[Job],
    gpu: Gpu,
    plans: Sequence[Forecast],
    objective: ObjectiveName = "makespan",
    serial: Forecast | None = None,
) -> Comparison:
    """Compare the first of `plans` for `jobs` on `gpu` with the others, and all with `serial`."""
    in_turn = any(one_by_one(each.sharing) for each in plans) or len(jobs) == 1
    by, note = rankable_by(plans, objective)
    forbidden = [
        broken_rule(jobs, each.sharing, gpu) or memory_problem(each.prediction, gpu)
        for each in plans
    ]
    pairs = zip(plans, forbidden, strict=True)
    allowed = [plan for plan, why in pairs if why is None] or plans
    best = first_plan(sorted(allowed, key=lambda plan: str(plan.sharing)), by)[0]
    first = plans[0]

    def row(plan: Forecast, why: str | None = None) -> ComparedPlan:
        cap_w, gain = plan.prediction.power_cap_w, cost_ratio(first, plan, by)
        steps_s = zip(plan.prediction.jobs, first.prediction.jobs, strict=True)
        same_way = plan.sharing == first.sharing
        return ComparedPlan(
            plan=str(plan.sharing) + ("" if cap_w is None else f" at {cap_w:g} W"),
            forecast=plan,
            binding=binding(jobs, gpu, plan.prediction),
            cost=known_cost(plan, by),
            gain_over_first=gain,
            step_over_first=tuple(
                joint_ratio(own.step_s, its.step_s, same_way=same_way) for own, its in steps_s
            ),
            ties_first=holds_one(gain),
            ties_best=tied(plan, best, by),
            forbidden=why,
        )

    rows = tuple(map(row, plans, forbidden))
    return Comparison(
        gpu=gpu,
        objective=by,
        note=note,
        plans=rows,
        best=next(each for each in rows if each.forecast is best),
        serial=None if in_turn or serial is None else row(serial),
    )


_WAYS = re.compile(r"(?:-(?:compiled|graph))?(?:-loader\d+)?$")
# A job whose GPU works for less than this share of its step could run far faster; a variant whose
# step takes less than this share of the job's is shown: choices.
_FAR, _FASTER = 2 / 3, 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBound:
    """A job that a shorter host path would speed up more than any sharing can.

    `host_share` is that of the predicted step, `gpu_share` that of the step alone, 0..1.
    """

    job: str
    host_share: float
    gpu_share: float
    step_s: float
    variant: str | None
    variant_step_s: float | None


def host_bound(
    jobs: Sequence[Job], bound: Binding, variants: Sequence[Profile]
) -> tuple[HostBound, ...]:
    """Find the jobs that their hosts hold far below the pace of the GPU; of equal jobs one."""
    held: dict[str, HostBound] = {}
    for at in bound.by_host:
        profile, host_share = jobs[at].profile, bound.host_shares[at]
        gpu_share = profile.busy_share
        if host_share is None or gpu_share is None or gpu_share >= _FAR or profile.name in held:
            continue
        work, least_s = _work(profile.workload), _FASTER * profile.step_s
        faster = [
            each for each in variants if each.step_s < least_s and _work(each.workload) == work
        ]
        best = min(faster, key=lambda each: each.step_s, default=None)
        held[profile.name] = HostBound(
            job=profile.name,
            host_share=host_share,
            gpu_share=gpu_share,
            step_s=profile.step_s,
            variant=best.name if best else None,
            variant_step_s=best.step_s if best else None,
        )
    return tuple(held.values())


def variants_of(
    jobs: Iterable[Job], gpu: str, find: FindsProfiles, profiles: Path | None = None
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """Find profiles of the same work as one of `jobs`, with another loader or execution.

    Their names end as `_WAYS`. The second value is why files of such a name hold none.
    """
    names = {job.name for job in jobs}
    stems = {_WAYS.sub("", name) for name in names}
    variants, refused = [], []
    for name in profile_paths(gpu, profiles):
        if name not in names and _WAYS.sub("", name) in stems:
            try:
                variants.append(find(name))
            except InvalidInput as error:
                refused.append(str(error))
    return tuple(variants), tuple(refused)


def _work(workload: Workload) -> Workload:
    """A key that is equal for equal work; loading input is part of it. Scripts differ in name."""
    loads = int(bool(workload.loader_workers))
    own = _WAYS.sub("", workload.name) if workload.source == "script" else None
    return replace(
        workload,
        name="work",
        execution="eager",
        loader_workers=loads,
        examples_per_epoch=None,
        model=own or workload.model,
        family=own or workload.family,
    )
