"""Predictions of a mix as values: each job's pace, memory and energy, and the GPU's numbers."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import exp, hypot, log, prod, sqrt
from operator import mul
from statistics import fmean, median
from typing import Annotated, Any, Literal, TypeVar

from advisor.documents import Mark
from advisor.errors import InvalidInput
from advisor.sharing import Sharing

Level = Literal["p05", "p50", "p95"]
LEVELS: tuple[Level, ...] = ("p05", "p50", "p95")
"""A whole mix is computed at each of these: the errors of all its jobs are fully correlated."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 90 % interval: the median, and the bounds that contain nine of ten measurements.

    Attributes:
        p05: Lower bound.
        p50: Median.
        p95: Upper bound.
    """

    p05: float
    p50: float
    p95: float

    def __post_init__(self) -> None:
        if not self.p05 <= self.p50 <= self.p95:
            raise InvalidInput(f"an interval holds its median, got {self}")

    def at(self, level: Level) -> float:
        """Return the median, or the bound that `level` names."""
        return self.p50 if level == "p50" else self.p95 if level == "p95" else self.p05

    def scaled(self, factor: float) -> "Interval":
        return Interval(self.p05 * factor, self.p50 * factor, self.p95 * factor)

    def later(self, by: float) -> "Interval":
        return Interval(self.p05 + by, self.p50 + by, self.p95 + by)

    def plus(self, other: "Interval") -> "Interval":
        """Add two numbers whose errors are fully correlated."""
        return Interval(*(self.at(level) + other.at(level) for level in LEVELS))

    def rate(self, work: float) -> "Interval":
        """Return `work` over it."""
        return Interval(work / self.p95, work / self.p50, work / self.p05)

    def widened(self, factor: float) -> "Interval":
        """Move both ends from the middle, in logs, by `factor`: away, or below 1 towards it."""
        low, high = self.p05 / self.p50, self.p95 / self.p50
        return Interval(self.p50 * low**factor, self.p50, self.p50 * high**factor)

    def times(self, factor: "Interval") -> "Interval":
        """Multiply two independent numbers: the logs of their errors add in quadrature."""
        down, up = map(hypot, self._reaches(), factor._reaches())
        return interval_around(self.p50 * factor.p50, -down, up)

    def at_least(self, other: "Interval") -> "Interval":
        """Return the higher of two bounds from below, at each level."""
        return Interval(*(max(self.at(level), other.at(level)) for level in LEVELS))

    def over(self, other: "Interval", common: float) -> "Interval":
        """Return the ratio to `other`, if a share `common` of each error has the same cause.

        That cause moves both to the same quantile, so of it their difference in width remains; the
        rest of each error is independent. At 0 all is independent.
        """

        def reach(own: float, across: float, beyond: float, beyond_across: float) -> float:
            apart, together = own**2 + across**2, beyond**2 + beyond_across**2
            return sqrt((1 - common) * apart + common * together)

        (down, up), (other_down, other_up) = self._reaches(), other._reaches()
        down_beyond, up_beyond = down - other_down, up - other_up
        low = reach(down, other_up, max(0.0, down_beyond), max(0.0, -up_beyond))
        high = reach(up, other_down, max(0.0, up_beyond), max(0.0, -down_beyond))
        return interval_around(self.p50 / other.p50, -low, high)

    def over_alike(self, other: "Interval") -> "Interval":
        """Return the ratio to `other`, if one has the error of the other and another of its own."""

        def own(wide: float, narrow: float) -> float:
            return sqrt(max(0.0, wide**2 - narrow**2))

        (down, up), (other_down, other_up) = self._reaches(), other._reaches()
        low = hypot(own(down, other_down), own(other_up, up))
        high = hypot(own(up, other_up), own(other_down, down))
        return interval_around(self.p50 / other.p50, -low, high)

    def _reaches(self) -> tuple[float, float]:
        """Return the distances of the ends from the middle, in logs."""
        return log(self.p50 / self.p05), log(self.p95 / self.p50)

    def at_most(self, most: "Interval") -> "Interval":
        """Return the interval with median and upper end no higher than those of `most`."""
        middle = min(self.p50, most.p50)
        return Interval(min(self.p05, middle), middle, max(middle, min(self.p95, most.p95)))

    def held_in(self, least: float, most: float) -> "Interval":
        """Return the interval with no value outside of `least` to `most`."""
        return Interval(*(min(most, max(least, self.at(level))) for level in LEVELS))

    def contains(self, measured: float) -> bool:
        """Check whether a measured value lies inside."""
        return self.p05 <= measured <= self.p95


def interval_around(middle: float, low: float, high: float) -> Interval:
    """Return the interval whose ends are `low` (at most 0) and `high` from its middle, in logs."""
    return Interval(middle * exp(low), middle, middle * exp(high))


def between(first: Interval, second: Interval, weight: float) -> Interval:
    """Mix two intervals, level by level in logs: `first` at `weight` 0, `second` at 1."""
    return Interval(*(first.at(at) ** (1 - weight) * second.at(at) ** weight for at in LEVELS))


def spanning(answers: Sequence[Interval]) -> Interval:
    """Return the interval that contains all of `answers`, any of which may be right."""
    return Interval(
        min(each.p05 for each in answers),
        median([each.p50 for each in answers]),
        max(each.p95 for each in answers),
    )


def around(values: Sequence[float]) -> Interval:
    """Return the interval of the results at each of `LEVELS`.

    With queues, slower steps may let the last job end sooner, since others start elsewhere.
    """
    return Interval(min(values), values[LEVELS.index("p50")], max(values))


_Value = TypeVar("_Value")


def all_known(values: Iterable[_Value | None]) -> list[_Value] | None:
    """Return `values` if all are known; None if one is None."""
    every = list(values)
    present = [value for value in every if value is not None]
    return present if len(present) == len(every) else None


def mean_interval(values: Sequence[Interval | None], weights: Sequence[float]) -> Interval | None:
    """Return the mean with fully correlated errors; None where a value is unknown."""
    if (intervals := all_known(values)) is None:
        return None
    return Interval(*(fmean([each.at(level) for each in intervals], weights) for level in LEVELS))


_Change = Callable[[Interval], Interval] | None
_TIMES = "step_s", "epoch_s", "with_ends_s"
ENERGIES = "energy_step_j", "energy_epoch_j", "energy_example_j"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPrediction:
    """Prediction of one job of a mix.

    Attributes:
        job: The profile's name.
        step_s: Seconds of a training step, together with the other jobs.
        epoch_s: One pass over the data, with its epoch ends; None if its length is unknown.
        slowdown: Predicted shared step over measured solo step; 1 when serial.
        memory_mib: GPU memory that the process holds without a cap.
        memory_min_mib: GPU memory that it needs; this suffices only if it is capped to it.
        memory_interval_mib: Interval of `memory_mib`.
        oom_probability: Chance that this job runs out of memory in this mix, 0..1.
        slowdown_error: Interval of the factor on `slowdown`; None: that of `step_s`.
        with_ends_s: A step together with its share of epoch ends; None: it has none.
        energy_step_j: Its part of the GPU's energy in a step and its share of epoch ends, by the
            rule in `advisor.prediction.power`; None if a profile of the mix has no power.
        energy_epoch_j: The same for one pass over the data.
        energy_example_j: The same for one example.
    """

    job: str
    step_s: Interval
    epoch_s: Interval | None
    slowdown: float
    memory_mib: float
    memory_min_mib: float
    memory_interval_mib: Interval
    oom_probability: float
    slowdown_error: Interval | None = None
    with_ends_s: Interval | None = None
    energy_step_j: Interval | None = None
    energy_epoch_j: Interval | None = None
    energy_example_j: Interval | None = None

    @property
    def paced_s(self) -> Interval:
        """Seconds for each step of the job's work, epoch ends included."""
        return self.with_ends_s or self.step_s

    def slowdown_at(self, level: Level) -> float:
        """Return step over step alone, at `level`."""
        error = self.slowdown_error or self.step_s.scaled(1 / self.step_s.p50)
        return self.slowdown * error.at(level)

    def no_faster_than(self, step_s: float) -> "JobPrediction":
        """Cut the range below `step_s`, or below its middle if that is shorter."""
        part = min(1.0, step_s / self.step_s.p50)
        return self.mapped(lambda each: replace(each, p05=max(each.p05, each.p50 * part)))

    def mapped(self, time: _Change = None, energy: _Change = None) -> "JobPrediction":
        """Return the job with `time` applied to step and epoch, and `energy` to all energies."""
        changes = dict.fromkeys(_TIMES, time) | dict.fromkeys(ENERGIES, energy)
        values: dict[str, Any] = {
            name: change(interval)
            for name, change in changes.items()
            if change is not None and (interval := getattr(self, name)) is not None
        }
        return replace(self, **values)

    def longer(self, by: float) -> "JobPrediction":
        """Return the job with steps `by` times as long, at the same power, so with more energy."""
        scaled = partial(Interval.scaled, factor=by)
        return replace(self.mapped(scaled, scaled), slowdown=self.slowdown * by)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPrediction:
    """Prediction of a mix, while all of its jobs run.

    Attributes:
        gpu: Catalogue key of the GPU.
        sharing: How the jobs share it.
        jobs: Each job, in the order of the question.
        memory_total_mib: Sum of the jobs' `memory_mib`; the largest one when serial.
        memory_capacity_mib: The GPU's memory for processes.
        oom_probability: Chance that any job runs out of memory, 0..1.
        weighted_speedup: Sum over jobs of solo step over shared step; 1 when serial.
        power_w: Mean power of the whole GPU; None if a profile has none.
        gract: Share of time in which the GPU's engine is active, 0..1; None if unknown.
        smact: Mean share of SMs with work, 0..1; None if unknown.
        confirmed_on_hardware: Whether real runs of this kind of sharing on this GPU confirm it.
        estimated_from: Keys of the other GPUs that it is estimated from; None: measured here.
        ran_elsewhere: Whether real runs of this kind on these GPUs confirm it.
        mps_server_mib: Memory that an MPS server holds; None: as on the first GPU measured.
        wide_because: Reason why intervals of steps are wider than usual, or narrower than under
            other ways to share; None if they are not.
        power_cap_w: Power cap of the GPU; None: its own limit.
        host_stretch: Factor on host work because jobs wait for cores; 1: they do not.
        host_cores: Cores that the jobs have together; None: as many as they need.
    """

    gpu: str
    sharing: Annotated[Sharing, Mark.TEXT]
    jobs: tuple[JobPrediction, ...]
    memory_total_mib: float
    memory_capacity_mib: float
    oom_probability: float
    weighted_speedup: float
    power_w: Interval | None
    gract: float | None
    smact: float | None
    confirmed_on_hardware: bool
    estimated_from: str | None = None
    ran_elsewhere: bool = False
    mps_server_mib: float | None = None
    power_cap_w: float | None = None
    wide_because: str | None = None
    host_stretch: float = 1.0
    host_cores: float | None = None


def over_run(stretches: Sequence[Sequence[tuple[JobPrediction, float]]]) -> JobPrediction:
    """Return one job over its run, from its prediction and seconds in each stretch of that run.

    Means are over steps, so that `paced_s` is the seconds of the run over its steps; `stretches`
    are given at each of `LEVELS`.
    """

    def mean(value: Callable[[JobPrediction, Level], float]) -> Interval:
        means = []
        for level, run in zip(LEVELS, stretches, strict=True):
            steps = [seconds / job.paced_s.at(level) for job, seconds in run]
            # A job shorter than the clock can tell runs for no seconds.
            weights = steps if any(steps) else [1.0] * len(run)
            means.append(fmean([value(job, level) for job, _ in run], weights))
        return around(means)

    every = [job for run in stretches for job, _ in run]

    def mean_of(name: str) -> Interval | None:
        if any(getattr(job, name) is None for job in every):
            return None
        return mean(lambda job, level: float(getattr(job, name).at(level)))

    slowdown = mean(JobPrediction.slowdown_at)
    means: dict[str, Any] = {name: mean_of(name) for name in (*_TIMES, *ENERGIES)}
    return replace(
        every[0],
        **means,
        slowdown=slowdown.p50,
        slowdown_error=slowdown.scaled(1 / slowdown.p50),
        oom_probability=max(job.oom_probability for job in every),
    )


def in_phases(
    sharing: Sharing, groups: Sequence[Sequence[int]], answers: Sequence[MixPrediction]
) -> MixPrediction:
    """Combine the predictions of groups into one of all jobs, each while its own group runs.

    Means are over the time that the groups take if all jobs are equally long alone; when every job
    is a group of its own, they are those of serial. `groups` are positions of jobs, increasing.
    """
    answered = chain.from_iterable(answer.jobs for answer in answers)
    jobs = dict(zip(chain.from_iterable(groups), answered, strict=True))
    takes = [len(answer.jobs) / answer.weighted_speedup for answer in answers]
    risk = 1 - prod(1 - answer.oom_probability for answer in answers)
    return time_mean(sharing, tuple(jobs[at] for at in sorted(jobs)), answers, takes, risk)


def time_mean(
    sharing: Sharing,
    jobs: tuple[JobPrediction, ...],
    answers: Sequence[MixPrediction],
    seconds: Sequence[float],
    oom_probability: float,
) -> MixPrediction:
    """Combine the predictions of mixes that run for so many `seconds` into one of all `jobs`.

    Power, activity and the weighted speedup are means over time; memory is that of the mix that
    fills it most, even if it runs for no time.
    """
    shares = [each / sum(seconds) for each in seconds]

    def mean_share(values: Sequence[float | None]) -> float | None:
        numbers = all_known(values)
        return None if numbers is None else sum(map(mul, numbers, shares))

    fullest = max(answers, key=lambda each: each.memory_total_mib / each.memory_capacity_mib)
    return MixPrediction(
        gpu=fullest.gpu,
        sharing=sharing,
        jobs=jobs,
        memory_total_mib=fullest.memory_total_mib,
        memory_capacity_mib=fullest.memory_capacity_mib,
        oom_probability=oom_probability,
        weighted_speedup=sum(map(mul, (answer.weighted_speedup for answer in answers), shares)),
        power_w=mean_interval([answer.power_w for answer in answers], shares),
        gract=mean_share([answer.gract for answer in answers]),
        smact=mean_share([answer.smact for answer in answers]),
        confirmed_on_hardware=all(answer.confirmed_on_hardware for answer in answers),
        estimated_from=next((each.estimated_from for each in answers if each.estimated_from), None),
        ran_elsewhere=all(each.confirmed_on_hardware or each.ran_elsewhere for each in answers),
        mps_server_mib=fullest.mps_server_mib,
        power_cap_w=fullest.power_cap_w,
        wide_because=next((each.wide_because for each in answers if each.wide_because), None),
        host_stretch=max(each.host_stretch for each in answers),
        host_cores=fullest.host_cores,
    )


def widened(mix: MixPrediction, factor: float, apart: Set[int]) -> MixPrediction:
    """Widen the intervals of time, power and energy of `mix` by `Interval.widened`.

    The steps of the jobs `apart`, by position, are not: others do not slow them.
    """
    wider = partial(Interval.widened, factor=factor)
    jobs = (job.mapped(None if at in apart else wider, wider) for at, job in enumerate(mix.jobs))
    return replace(mix, jobs=tuple(jobs), power_w=mix.power_w and wider(mix.power_w))
