"""What is asked for advice, and what advice consists of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from advisor.hardware.catalogue import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.host_bound import Remedy
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.prediction.mix_prediction import Interval, Level, MixPrediction
from advisor.prediction.surrogate_answers import SurrogatePredictor
from advisor.sharing import Arrangement, Sharing
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.staleness import Stale

Precedence = Literal["deadlines", "fairness", "confirmed", "gain", "cost", "makespan", "simplicity"]
"""By what a plan comes before the next: see `advisor.plan.precedence`."""


class Predicts(Protocol):
    """Whatever answers for a mix; `advisor.prediction.predictor.Predictor` does."""

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction: ...

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the plans for jobs on one GPU.

    Attributes:
        objective: What the best plan is best at.
        level: Of each cost's interval what plans are ranked by: the median, or the upper end.
    """

    gpu: Gpu
    predictor: Predicts
    objective: ObjectiveName
    level: Level = "p50"
    conditions: Conditions = UNCONDITIONAL


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Which calibration a recommendation is made with.

    Attributes:
        file: Where it lies; None: the host was checked just now instead.
        host_slowdown: How much longer host work takes there than where the jobs were profiled,
            with all of them running: the median job's. None where no profile can say.
    """

    file: str | None
    host_slowdown: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """What a recommendation is made with, besides profiles and model.

    Attributes:
        calibrated: None where the machine was neither calibrated nor its host checked.
        stale: Profiles made with something else than is there now, by kind.
        unchecked: Why a check of the host just now failed; None: none was tried, or it did not.
        unsteady: A line on each profile whose own windows disagreed.
        estimated: Profiles that nobody measured on this GPU, or at this batch size; each is what
            those measured on another, or at others, let expect.
    """

    calibrated: Calibrated | None = None
    stale: tuple[Stale, ...] = ()
    unchecked: str | None = None
    unsteady: tuple[str, ...] = ()
    estimated: tuple[Profile, ...] = ()

    @property
    def doubts(self) -> "tuple[Stale | str, ...]":
        """What speaks against the profiles, each a line."""
        return (*self.stale, *self.unsteady)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What happens to a set of jobs under one sharing, from the first step to the last.

    Attributes:
        prediction: While all jobs run.
        makespan_interval_s: Until the last job ends, all started at once (serial: in turn);
            the errors of all jobs are taken to go the same way. None where a job's length is
            not known.
        energy_j: Of the whole GPU until then; None where a length or the power is not known.
        speedup_vs_serial: Serial makespan over this one; None without makespans.
        ends_s: Until each job ends, in the jobs' order; None without makespans.
        deadlines_s: Of each job, in the same order; None where it has none.
        batches: Examples a step of each job, in the same order; empty: as it was asked for.
        standing: Of a plan, its recommendation says it.
    """

    prediction: MixPrediction
    makespan_interval_s: Interval | None
    energy_j: Interval | None
    speedup_vs_serial: float | None
    ends_s: tuple[Interval, ...] | None = None
    deadlines_s: tuple[float | None, ...] = ()
    batches: tuple[int, ...] = ()
    standing: Standing = Standing()

    @property
    def sharing(self) -> Sharing:
        return self.prediction.sharing

    @property
    def makespan_s(self) -> float | None:
        return None if self.makespan_interval_s is None else self.makespan_interval_s.p50

    def late(self, level: Level) -> frozenset[int]:
        """Positions of the jobs that miss their deadlines; none where no end is known."""
        due = zip(self.ends_s or (), self.deadlines_s, strict=self.ends_s is not None)
        return frozenset(
            at
            for at, (end_s, deadline_s) in enumerate(due)
            if deadline_s is not None and end_s.at(level) > deadline_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Forecast):
    """A forecast that fits, with its place among the others.

    Attributes:
        rank: 1 is best.
        ties_best: Whether it equals the best within our error; true of the best itself.
        late_jobs: Numbers, from 1, of the jobs that miss their deadlines, by medians or by upper
            ends, as it was ranked.
        precedes_by: By what it comes before the next plan; None: it is the last.
        why: One line: what binds, how far behind the best it is, and by what rule it comes before
            a next one that it equals.
        commands: Shell lines that apply it; the jobs' own commands are placeholders. Empty until
            `advisor.launch.commands.with_commands` adds them.
    """

    rank: int
    ties_best: bool
    late_jobs: tuple[int, ...]
    precedes_by: Precedence | None
    why: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A sharing that was considered and is no plan; `why` says what is missing."""

    sharing: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Every plan for a set of jobs on one GPU, best first.

    Attributes:
        objective: As asked for.
        ranked_by: What the plans were ranked by; differs where `objective` cannot be computed.
        note: Why it differs; None where it does not.
        level: What counts of a cost: its median, or the upper end of its interval.
        serial: One after the other: what every gain is measured against; also among `plans`.
        plans: Of limits and of MIG layouts the best few only.
        considered: Sharings that were predicted or left out, in all.
        searched: What was predicted to find the plans, and what was estimated; None: there
            was nothing to search.
        variants: Profiles of the same work with another loader or execution, where there are any.
        refused_variants: Why files that bear the names of such profiles hold none.
        remedies: What would help jobs that wait for their hosts under the best plan.
    """

    gpu: Gpu
    jobs: tuple[Job, ...]
    objective: ObjectiveName
    ranked_by: ObjectiveName
    note: str | None
    level: Level
    serial: Plan
    plans: tuple[Plan, ...]
    left_out: tuple[LeftOut, ...]
    considered: int
    searched: str | None
    standing: Standing = Standing()
    variants: tuple[Profile, ...] = ()
    refused_variants: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    @property
    def best(self) -> Plan:
        return self.plans[0]
