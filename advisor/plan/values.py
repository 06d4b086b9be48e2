"""The values of a recommendation: question, forecasts, plans, and their basis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from advisor.documents import As, Inline, Mark, in_document
from advisor.hardware.gpus import Gpu
from advisor.hardware.machine import HostCheck
from advisor.plan import ObjectiveName
from advisor.plan.rules import MAX_OOM_PROBABILITY, UNCONDITIONAL, Conditions
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.model import OwnPace
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing import Sharing
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.profile_checks import Stale

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecast of jobs under one sharing, from the first step to the last.

    Attributes:
        prediction: Step times, memory and power while all jobs run.
        makespan_interval_s: Seconds until the last job ends, if all start at once (serial: in
            turn); the errors of all jobs are assumed to be correlated. None: a length is unknown.
        energy_j: Joules of the whole GPU until then; None: a length or the power is unknown.
        speedup_vs_serial: Serial makespan over this one; None without makespans.
        serial_interval_s: Serial makespan under the same power cap.
        ends_s: Seconds until each job ends, in the jobs' order; None without makespan.
        deadlines_s: Deadline of each job, in the jobs' order; None: it has none.
        standing: Evidence that it is based on; that of a plan is in its recommendation.
    """

    prediction: Annotated[MixPrediction, Inline()]
    makespan_interval_s: Interval | None = None
    energy_j: Interval | None = None
    speedup_vs_serial: float | None = None
    serial_interval_s: Interval | None = None
    ends_s: tuple[Interval, ...] | None = None
    deadlines_s: tuple[float | None, ...] = ()
    standing: Annotated[Standing, Mark.AT_TOP] = Standing()

    @property
    def sharing(self) -> Sharing:
        """How the jobs share the GPU; `str` gives its notation, e.g. ``"mps=50,50"``."""
        return self.prediction.sharing

    @property
    @in_document
    def makespan_s(self) -> float | None:
        """Median of `makespan_interval_s`."""
        return None if self.makespan_interval_s is None else self.makespan_interval_s.p50

    @property
    def fits(self) -> bool:
        """Whether memory suffices for the jobs, but for a small risk."""
        return self.prediction.oom_probability <= MAX_OOM_PROBABILITY

    def late(self, level: Level) -> frozenset[int]:
        """Return the positions of the jobs that miss their deadlines; none if ends are unknown."""
        due = zip(self.ends_s or (), self.deadlines_s, strict=self.ends_s is not None)
        return frozenset(
            at
            for at, (end_s, deadline_s) in enumerate(due)
            if deadline_s is not None and end_s.at(level) > deadline_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Forecast):
    """Forecast of a plan that fits, with its rank.

    Attributes:
        rank: Its place among the plans, from 1.
        ties_best: Whether it ties with the best plan, within the error; true of the best.
        late_jobs: Positions of the jobs that miss their deadlines.
        precedes_by: The rule by which it precedes the next plan; None: it is the last.
        why: The reason for its rank, as a sentence.
        commands: Shell lines that apply the plan.
    """

    rank: int
    ties_best: bool
    late_jobs: tuple[int, ...]
    precedes_by: Precedence | None
    why: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A way to share that is not allowed, and why."""

    sharing: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Plans for a set of jobs on one GPU, best first, the best few of each kind.

    Attributes:
        gpu: The GPU model.
        jobs: The jobs, in the order of the question.
        objective: The objective of the question.
        ranked_by: The objective of the ranking; if it is not `objective`, `note` gives the reason.
        serial: All jobs one after another, in the order that is best by `ranked_by`: the baseline
            of every gain; also one of `plans`.
        plans: The plans, best first.
        left_out: Ways to share that are not allowed, with the reason.
        considered: Number of candidates.
        searched: Numbers of candidates predicted and estimated, in words; None: no search.
        standing: Evidence that the answer is based on.
        variants: Profiles of the same work with another loader or execution.
        refused_variants: Reasons why files with the names of such profiles could not be read.
        another_layout: The best plan if root changes the layout of a GPU in MIG mode; None: plans
            are not confined to its MIG devices, or there is no root.
    """

    gpu: Annotated[Gpu, As("key")]
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
    standing: Annotated[Standing, Mark.AT_TOP] = Standing()
    variants: Annotated[tuple[Profile, ...], Mark.LEFT_OUT] = ()
    refused_variants: tuple[str, ...] = ()
    another_layout: Plan | None = None

    @property
    def best(self) -> Plan:
        """The first plan."""
        return self.plans[0]
