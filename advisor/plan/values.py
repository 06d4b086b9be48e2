"""The values of a recommendation: GPUs, question, forecasts, plans, and their basis."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

from advisor.documents import As, Inline, Mark, in_document
from advisor.hardware.gpus import Gpu, GpuCount
from advisor.hardware.machine import HostCheck
from advisor.plan import ObjectiveName
from advisor.plan.rules import MAX_OOM_PROBABILITY, UNCONDITIONAL, Conditions
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.model import OwnPace
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import (
    LEVELS,
    Interval,
    JobPrediction,
    Level,
    MixPrediction,
    around,
)
from advisor.sharing import Sharing
from advisor.sharing.groups import one_by_one, relabelled, without_phases
from advisor.simulation.turns import set_spans
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.profile_checks import Stale


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """Equal GPUs on equal hosts.

    Attributes:
        host_gpus: GPUs of each host.
        jobs: All jobs of the question, with their profiles on this model of GPU.
        predictor: Predicts while each GPU has an equal part of its host's cores.
        host_memory_mib: Memory of each host, of which each GPU's jobs have an equal part; None: as
            much as they need.
    """

    gpu: Gpu
    hosts: int
    host_gpus: int
    jobs: tuple[Job, ...]
    predictor: Predicts
    host_memory_mib: float | None = None

    @property
    def gpus(self) -> int:
        return self.hosts * self.host_gpus

    @cached_property
    def idle_power_w(self) -> float | None:
        return idle_power_w([job.profile for job in self.jobs])

    @property
    def count(self) -> GpuCount:
        """Its GPUs by host."""
        return GpuCount(self.gpu.key, self.hosts, self.host_gpus)


Precedence = Literal["deadlines", "starvation", "cost", "makespan", "simplicity"]
"""By what a plan comes before the next: see `advisor.plan.ranking`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about the jobs on one GPU."""

    gpu: Gpu
    predictor: Predicts
    objective: ObjectiveName
    level: Level = "p50"
    conditions: Conditions = UNCONDITIONAL


@dataclass(frozen=True, slots=True)
class Standing:
    """The basis of a recommendation, apart from profiles and model.

    Attributes:
        calibrated: File of the machine's calibration.
        stale: Profiles that were made with other software or hardware than the present, by kind.
        host_factor: Seconds of host work here over those where the jobs were profiled: median over
            the jobs.
        host_solo: Jobs that ran alone here since they were profiled.
        host_from: Keys of the other GPUs on whose hosts CPU time of the jobs was measured.
        estimated: Profiles that were estimated from other GPUs or batch sizes, not measured.
        power_cap_w: Power cap of all predictions; None: the GPU's own limit, or one for each plan.
        nominal: Jobs of which only the duration is known, so that their steps are nominal.
        preallocated: A line for each job whose memory may be what its framework takes at its start.
    """

    calibrated: str | None = None
    stale: tuple[Stale, ...] = ()
    host_check: HostCheck | None = None
    host_factor: float | None = None
    host_solo: tuple[str, ...] = ()
    host_from: str | None = None
    unsteady: tuple[str, ...] = ()
    estimated: Annotated[tuple[Profile, ...], Mark.LEFT_OUT] = ()
    own_paces: Mapping[str, OwnPace] = field(default_factory=dict, hash=False)
    power_cap_w: float | None = None
    nominal: tuple[str, ...] = ()
    preallocated: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[Stale | str, ...]:
        """Reasons to doubt the profiles, a line each."""
        return (*self.stale, *self.unsteady, *self.preallocated)

    @property
    @in_document
    def estimated_profiles(self) -> dict[str, str | None]:
        """The GPU from which each estimated profile is translated; None: it is of this one."""
        return {each.name: each.estimated_from for each in self.estimated}

    @property
    @in_document
    def estimated_batches(self) -> dict[str, tuple[int, ...]]:
        """The batch sizes from which a profile of another is estimated."""
        batches = {each.name: each.other_batches for each in self.estimated}
        return {name: each.batches for name, each in batches.items() if each is not None}

    @property
    @in_document
    def estimated_from(self) -> str | None:
        """Keys of the GPUs whose profiles are translated to this one; None: of none."""
        keys = {each.estimated_from for each in self.estimated if each.estimated_from is not None}
        return ", ".join(sorted(keys)) or None


class Totals(NamedTuple):
    """The numbers of an `Outcome` at one level, with its units; None: unknown.

    A search leaves out those of its candidates that the objective does not need.
    """

    makespan_s: float | None
    ends_s: Sequence[float] | None
    deadlines_s: Sequence[float | None]
    energy_j: float | None
    equal_work: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(ABC):
    """When some jobs end, and what that takes: all that objectives ask for.

    Attributes:
        equal_work: Time in which each job does a unit of its work; in that of all jobs one after
            another on one GPU.
        makespan_interval_s: Seconds until the last job ends, if all start at once (serial: in
            turn); the errors of all jobs are assumed to be correlated. None: a length is unknown.
        energy_j: Joules of all GPUs, idle ones too, until then; None: a length or the power is
            unknown.
        ends_s: Seconds until each job ends, in the jobs' order; None without makespan.
        deadlines_s: Deadline of each job, in the jobs' order; None: it has none.
    """

    equal_work: Annotated[Interval, Mark.LEFT_OUT]
    makespan_interval_s: Interval | None = None
    energy_j: Interval | None = None
    ends_s: tuple[Interval, ...] | None = None
    deadlines_s: tuple[float | None, ...] = ()

    @property
    @abstractmethod
    def mixes(self) -> tuple[MixPrediction, ...]:
        """The jobs of each GPU while all of them run."""

    @property
    @abstractmethod
    def predictions(self) -> tuple[JobPrediction, ...]:
        """Each job in the order of the question; one on several GPUs as on the last of them."""

    @property
    def one_by_one(self) -> bool:
        """True if no two jobs share a GPU."""
        return all(one_by_one(each.sharing) for each in self.mixes)

    @property
    @in_document
    def makespan_s(self) -> float | None:
        """Median of `makespan_interval_s`."""
        return None if self.makespan_interval_s is None else self.makespan_interval_s.p50

    def at(self, level: Level) -> Totals:
        """Return the numbers at `level` of their intervals."""
        last_s, ends_s, energy_j = self.makespan_interval_s, self.ends_s, self.energy_j
        return Totals(
            makespan_s=None if last_s is None else last_s.at(level),
            ends_s=None if ends_s is None else [each.at(level) for each in ends_s],
            deadlines_s=self.deadlines_s,
            energy_j=None if energy_j is None else energy_j.at(level),
            equal_work=self.equal_work.at(level),
        )

    def late(self, level: Level) -> frozenset[int]:
        """Return the positions of the jobs that miss their deadlines; none if ends are unknown."""
        due = zip(self.ends_s or (), self.deadlines_s, strict=self.ends_s is not None)
        return frozenset(
            at
            for at, (end_s, deadline_s) in enumerate(due)
            if deadline_s is not None and end_s.at(level) > deadline_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Outcome):
    """Forecast of jobs under one sharing of a GPU, from the first step to the last.

    Attributes:
        prediction: Step times, memory and power while all jobs run.
        speedup_vs_serial: Serial makespan over this one; None without makespans.
        serial_interval_s: Serial makespan under the same power cap.
        standing: Evidence that it is based on; that of a plan is in its recommendation.
    """

    prediction: Annotated[MixPrediction, Inline()]
    speedup_vs_serial: float | None = None
    serial_interval_s: Interval | None = None
    standing: Annotated[Standing, Mark.AT_TOP] = Standing()

    @property
    def mixes(self) -> tuple[MixPrediction, ...]:
        return (self.prediction,)

    @property
    def predictions(self) -> tuple[JobPrediction, ...]:
        return self.prediction.jobs

    @property
    def sharing(self) -> Sharing:
        """How the jobs share the GPU; `str` gives its notation, e.g. ``"mps=50,50"``."""
        return self.prediction.sharing

    @property
    def fits(self) -> bool:
        """Whether memory suffices for the jobs, but for a small risk."""
        return self.prediction.oom_probability <= MAX_OOM_PROBABILITY


def equal_work(mix: MixPrediction) -> Interval:
    """Compute the time in which each job of `mix` does a unit of its work.

    A unit is what a job alone does in a unit of time, whatever it has to do in all, and the time is
    a share of what one job after another takes.
    """
    if mix.sharing.mode == "serial" and mix.power_cap_w is None:
        return Interval(1.0, 1.0, 1.0)
    at_levels = [[job.slowdown_at(level) for job in mix.jobs] for level in LEVELS]
    if without_phases(mix.sharing) is None:  # jobs wait for others; all take equally long alone
        return around([sum(set_spans(mix.sharing, slowed)) / len(slowed) for slowed in at_levels])
    # In turn, each job has its whole speed for its part of the time.
    turns = len(mix.jobs) if mix.sharing.mode == "serial" else 1
    return around([turns / sum(1 / each for each in slowed) for slowed in at_levels])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """The plan of one GPU, numbered from 0 over all hosts.

    Attributes:
        job_numbers: Numbers of its jobs among all of the question, from 1, increasing.
        members: These jobs, as profiled on this model of GPU.
        forecast: From the start of its first job; without waits for other GPUs. Job numbers of its
            sharing are positions in `job_numbers`, from 1.
        waits_s: Seconds that each job starts later than that, shape (jobs,): a job that takes
            several GPUs waits for all of them.
        commands: Shell lines that apply it on the first GPU of a machine.
    """

    number: int
    gpu: Annotated[Gpu, As("key")]
    job_numbers: tuple[int, ...]
    members: Annotated[tuple[Job, ...], Mark.LEFT_OUT]
    forecast: Annotated[Forecast, Inline("makespan_interval_s", "energy_j")]
    waits_s: tuple[float, ...]
    commands: tuple[str, ...] = ()

    @property
    @in_document
    def prediction(
        self,
    ) -> Annotated[
        MixPrediction,
        Inline(
            "sharing",
            "memory_total_mib",
            "memory_capacity_mib",
            "oom_probability",
            "power_w",
            "power_cap_w",
            "confirmed_on_hardware",
        ),
    ]:
        """Its jobs while all run."""
        return self.forecast.prediction

    @property
    def sharing(self) -> Sharing:
        """How its jobs share it."""
        return self.forecast.sharing

    @property
    def ends_s(self) -> tuple[Interval, ...] | None:
        """Seconds until each job ends, in the order of `job_numbers`; None: unknown."""
        if self.forecast.ends_s is None:
            return None
        pairs = zip(self.forecast.ends_s, self.waits_s, strict=True)
        return tuple(end_s.later(wait_s) for end_s, wait_s in pairs)


Way = Literal["serial", "batches", "first-fit", "queue", "mig", "exact"]
"""How the jobs of a plan for several GPUs were grouped, the simplest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Outcome):
    """All jobs on all GPUs, from the first step to the last; `advisor.plan.schedule` makes it.

    Attributes:
        way: How many jobs, or those of several GPUs, were grouped; None: few jobs on one GPU.
        gpus: The plan of each GPU that runs a job.
        oom_probability: Chance that the GPU on which that is likeliest runs out of memory.
        confirmed_on_hardware: Whether real runs confirm how the jobs of each GPU share it.
    """

    way: Way | None
    gpus: tuple[GpuPlan, ...]
    oom_probability: float
    confirmed_on_hardware: bool

    @property
    @in_document
    def prediction(self) -> Annotated[MixPrediction, Inline()]:
        """The jobs of the GPU whose memory is fullest, while all of them run."""
        return max(self.mixes, key=lambda mix: mix.memory_total_mib / mix.memory_capacity_mib)

    @property
    def forecast(self) -> Forecast:
        """Forecast of the only GPU."""
        (only,) = self.gpus
        return only.forecast

    @property
    def sharing(self) -> Sharing:
        """How the jobs share the GPU whose memory is fullest; `str` gives its notation."""
        return self.prediction.sharing

    @property
    def notation(self) -> str:
        """Notation of what all GPUs run, with the numbers of the jobs in the question."""
        if len(self.gpus) == 1:
            return str(self.sharing)
        return " | ".join(
            ";".join(map(str, relabelled(each.sharing, each.job_numbers))) for each in self.gpus
        )

    @property
    def mixes(self) -> tuple[MixPrediction, ...]:
        return tuple(each.prediction for each in self.gpus)

    @property
    def predictions(self) -> tuple[JobPrediction, ...]:
        jobs: dict[int, JobPrediction] = {}
        for each in self.gpus:
            jobs.update(zip(each.job_numbers, each.prediction.jobs, strict=True))
        return tuple(jobs[number] for number in sorted(jobs))

    @property
    def power_caps_w(self) -> tuple[float, ...]:
        """The different power caps of its GPUs, increasing; those at their own limits have none."""
        caps_w = {each.power_cap_w for each in self.mixes}
        return tuple(sorted(cap_w for cap_w in caps_w if cap_w is not None))

    @property
    @in_document
    def mean_completion_s(self) -> float | None:
        """Mean over the jobs of the median seconds until a job ends."""
        return None if self.ends_s is None else fmean(each.p50 for each in self.ends_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Schedule):
    """A schedule that fits, with its rank.

    Attributes:
        rank: Its place among the plans, from 1.
        ties_best: Whether it ties with the best plan, within the error; true of the best.
        late_jobs: Numbers of the jobs that miss their deadlines.
        precedes_by: The rule by which it precedes the next plan; None: it is the last.
        gain: Cost of one job after another over its own; above 1 it is better.
        speedup_vs_serial: The same of the makespan; None without makespans.
        why: The reason for its rank, as a sentence.
        commands: Shell lines that apply the plan.
    """

    rank: int
    ties_best: bool
    late_jobs: tuple[int, ...]
    precedes_by: Precedence | None
    gain: Interval
    speedup_vs_serial: float | None
    why: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A way to share that is not allowed, and why."""

    sharing: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OneLoader:
    """A better way for the same jobs, if they take their batches from one data loader.

    Attributes:
        sharing: How they share the GPU then.
        jobs: Number of the jobs at once.
        gain: Work in a time over that of the best way with a loader each.
        cores: Host cores that they keep busy then; None: unknown.
        cores_now: The same with a loader each.
    """

    sharing: Annotated[Sharing, Mark.TEXT]
    jobs: int
    gain: float
    cores: float | None
    cores_now: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Plans for a set of jobs, best first: the best few of each kind.

    Attributes:
        gpu: The GPU model; of several, the first.
        hosts: The GPUs by model and host.
        jobs: The jobs, in the order of the question, with their profiles on the first model.
        objective: The objective of the question.
        ranked_by: The objective of the ranking; if it is not `objective`, `note` gives the reason.
        serial: All jobs one after another on each GPU: the baseline of every gain; also one of
            `plans`.
        plans: The plans, best first.
        left_out: Ways to share that are not allowed, with the reason.
        considered: Number of candidates.
        searched: Numbers of candidates predicted and estimated, in words; None: no search.
        longer_effort: An effort with which the search goes on; None: there is no more to compare.
        standing: Evidence that the answer is based on.
        variants: Profiles of the same work with another loader or execution.
        refused_variants: Reasons why files with the names of such profiles could not be read.
        another_layout: The best plan if root changes the layout of a GPU in MIG mode; None: plans
            are not confined to its MIG devices, or there is no root.
        one_loader: A better way if the jobs share a data loader; None: there is none.
    """

    gpu: Annotated[Gpu, As("key")]
    hosts: tuple[GpuCount, ...]
    jobs: Annotated[tuple[Job, ...], Mark.LEFT_OUT]
    objective: ObjectiveName
    ranked_by: ObjectiveName
    note: str | None
    level: Level
    serial: Plan
    plans: tuple[Plan, ...]
    left_out: tuple[LeftOut, ...]
    considered: int
    searched: str | None
    longer_effort: float | None = None
    standing: Annotated[Standing, Mark.AT_TOP] = Standing()
    variants: Annotated[tuple[Profile, ...], Mark.LEFT_OUT] = ()
    refused_variants: tuple[str, ...] = ()
    another_layout: Plan | None = None
    one_loader: OneLoader | None = None

    @property
    def best(self) -> Plan:
        """The first plan."""
        return self.plans[0]

    @property
    @in_document
    def gpus(self) -> int:
        """Number of all GPUs."""
        return sum(each.gpus for each in self.hosts)
