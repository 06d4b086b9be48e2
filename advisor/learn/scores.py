"""Compares the prediction of a real run with its measurement."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.gpus import Gpu
from advisor.learn.baselines import Baseline
from advisor.prediction.host import profiles_on_host
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval, all_known
from advisor.sharing import Arrangement, Mode, Serial, Sharing, parse_sharing
from advisor.sharing.groups import without_phases
from advisor.workload.profile import Profile
from advisor.workload.run import Run, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class JobComparison:
    """One tenant of a run.

    Attributes:
        family: Of its workload.
        busy_share: Share of its solo step in which the GPU worked; None if not measured.
        alone_s: Its solo step, from its profile.
        memory_mib: Predicted device memory of the process; None if not predicted.
        measured_memory_mib: None if the driver would not say.
        baselines_s: Each baseline's step, by name; None if it is not defined.
    """

    job: str
    family: str
    busy_share: float | None
    alone_s: float
    measured_s: float
    predicted_s: Interval
    memory_mib: float | None
    measured_memory_mib: float | None
    baselines_s: Mapping[str, float | None]

    @property
    def error(self) -> float:
        """Predicted over measured step, minus 1."""
        return self.predicted_s.p50 / self.measured_s - 1

    @property
    def inside(self) -> bool:
        """Whether the measured step lies in the predicted interval."""
        return self.predicted_s.contains(self.measured_s)

    def baseline_error(self, name: str) -> float | None:
        """The named baseline's step over the measured one, less 1; None if not defined."""
        step_s = self.baselines_s[name]
        return None if step_s is None else step_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All tenants of one run, in its order."""

    run: Run
    jobs: tuple[JobComparison, ...]

    @property
    def measured_speedup(self) -> float:
        """Sum over jobs of solo step over measured step."""
        return sum(job.alone_s / job.measured_s for job in self.jobs)

    @property
    def predicted_speedup(self) -> float:
        """Sum over jobs of solo step over predicted step."""
        return sum(job.alone_s / job.predicted_s.p50 for job in self.jobs)

    def baseline_speedup(self, name: str) -> float | None:
        """The same by the named baseline; None if it is not defined."""
        if (steps_s := all_known(job.baselines_s[name] for job in self.jobs)) is None:
            return None
        return sum(job.alone_s / s for job, s in zip(self.jobs, steps_s, strict=True))

    @property
    def memory_total_mib(self) -> float | None:
        """None if not predicted."""
        return _sum(job.memory_mib for job in self.jobs)

    @property
    def measured_memory_total_mib(self) -> float | None:
        """None if the driver would not say for each process."""
        return _sum(job.measured_memory_mib for job in self.jobs)


def runs_of_mode(runs: Iterable[RunComparison], mode: Mode) -> list[RunComparison]:
    """Those of `runs` that shared in `mode`."""
    return [run for run in runs if sharing_of(run.run).mode == mode]


def _sum(values: Iterable[float | None]) -> float | None:
    known = all_known(values)
    return None if known is None else sum(known)


def sharing_of(run: Run) -> Arrangement:
    """How the tenants of `run` shared; a tenant alone on the GPU without MPS is serial.

    Raises:
        InvalidInput: It says that they ran in phases: those are several runs.
    """
    sharing = without_phases(parse_sharing(run.sharing))
    if sharing is None:
        raise InvalidInput(f"{run.id}: {run.sharing} is several runs. Record each group as one.")
    return Serial() if len(run.tenants) == 1 and sharing.mode == "naive" else sharing


View = Literal["raw", "core-adjusted"]
"""From which profiles to predict a run: as they were measured, which is what a user has, or as on
the cores that its tenants had, whose speed nobody knows beforehand."""


def profiles_of(run: Run, profiles: Mapping[str, Profile], view: View) -> tuple[Profile, ...]:
    """The solo profile of each tenant of `run` in its order.

    Raises:
        UnknownName: A tenant has none.
    """
    names = [tenant.workload.name for tenant in run.tenants]
    for name in names:
        if name not in profiles:
            remedy = f"Run {run.id} cannot be compared without; measure it: advisor profile {name}"
            raise UnknownName("profile", name, profiles, remedy)
    if view == "core-adjusted":
        return profiles_on_host(run, profiles)
    return tuple(profiles[name] for name in names)


def compare(
    run: Run,
    alone: Sequence[Profile],
    predictor: Predicts,
    gpu: Gpu,
    baselines: Mapping[str, Baseline],
) -> RunComparison:
    """Predict `run` from its tenants' profiles alone and compare it with the measurement.

    Args:
        run: One in which every tenant ran to the end.
        alone: The solo profile of each tenant; see `profiles_of`.
        predictor: Makes the prediction.
        gpu: The GPU that `run` ran on.
        baselines: What to predict with besides, by name.
    """
    sharing = sharing_of(run)
    prediction = predictor.predict(alone, sharing)
    rivals = baseline_steps(baselines, alone, sharing, gpu)
    return RunComparison(
        run,
        tuple(
            compared_job(tenant, profile, predicted.step_s, steps, predicted.memory_mib)
            for tenant, profile, predicted, steps in zip(
                run.tenants, alone, prediction.jobs, rivals, strict=True
            )
        ),
    )


def baseline_steps(
    baselines: Mapping[str, Baseline], profiles: Sequence[Profile], sharing: Sharing, gpu: Gpu
) -> list[dict[str, float | None]]:
    """Each baseline's step of each job, by name; None if it is not defined for the mix."""
    steps = {name: baseline(profiles, sharing, gpu) for name, baseline in baselines.items()}
    return [
        {name: None if s is None else float(s[place]) for name, s in steps.items()}
        for place in range(len(profiles))
    ]


def compared_job(
    tenant: Tenant,
    alone: Profile,
    step_s: Interval,
    baselines_s: Mapping[str, float | None],
    memory_mib: float | None = None,
) -> JobComparison:
    """The measurement of `tenant` with its prediction."""
    return JobComparison(
        job=tenant.workload.name,
        family=tenant.workload.family,
        busy_share=alone.busy_share,
        alone_s=alone.step_s,
        measured_s=tenant.step_s,
        predicted_s=step_s,
        memory_mib=memory_mib,
        measured_memory_mib=tenant.memory.device_mib if tenant.memory else None,
        baselines_s=baselines_s,
    )


# A workload is steady when its repeats lie within this of each other, in the median.
_STEADY = 0.05

_DRAWS = 2000
_SEED = 20261121
_FEWEST_FAMILIES = 2

Repeats = Iterable[tuple[Run, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Differences between repeats with new workers, and errors of the same runs, as shares.

    Attributes:
        n: Jobs measured twice.
        median: Median absolute difference of a job between a run and its repeat.
        rmse: Root of the mean squared difference.
        error_rmse: Root mean squared error of the prediction, over the repeated runs.
    """

    n: int
    median: float
    rmse: float
    error_rmse: float

    @property
    def excess(self) -> float:
        """Error of the prediction beyond the difference of two runs."""
        return float(np.sqrt(max(0.0, self.error_rmse**2 - self.rmse**2)))

    @property
    def excess_over_one_run(self) -> float:
        """Error beyond the noise of one run; a difference of two contains that of both."""
        return float(np.sqrt(max(0.0, self.error_rmse**2 - self.rmse**2 / 2)))


def noise_of(
    runs: Sequence[RunComparison],
    repeats: Repeats,
    counts: Callable[[JobComparison], bool] = lambda job: True,  # noqa: ARG005
) -> Noise | None:
    """The noise of the jobs that count, in those of `runs` that were repeated; None without any."""
    by_id = {run.run.id: run for run in runs}
    pairs = [(first, again) for first, again in repeats if first.id in by_id]
    apart = np.array([
        difference
        for first, again in pairs
        for job, difference in zip(by_id[first.id].jobs, _apart(first, again), strict=True)
        if counts(job)
    ])  # fmt: skip
    if not len(apart):
        return None
    repeated = {first.id for first, _ in pairs}
    jobs = [job for name in sorted(repeated) for job in by_id[name].jobs if counts(job)]
    errors = np.array([job.error for job in jobs])
    return Noise(
        n=len(apart),
        median=float(np.median(apart)),
        rmse=float(np.sqrt(np.mean(apart**2))),
        error_rmse=float(np.sqrt(np.mean(errors**2))),
    )


@dataclass(frozen=True, slots=True)
class RepeatSummary:
    """How many workloads repeat well.

    Attributes:
        workloads: That were in a run which was repeated.
        steady: Those whose repeats lie within 5 % of each other in the median.
    """

    workloads: int
    steady: int


def steadiness(repeats: Repeats) -> RepeatSummary:
    """How many workloads of the repeated runs repeat within 5 %."""
    apart: dict[str, list[float]] = {}
    for first, again in repeats:
        for tenant, difference in zip(first.tenants, _apart(first, again), strict=True):
            apart.setdefault(tenant.workload.name, []).append(difference)
    steady = sum(float(np.median(each)) <= _STEADY for each in apart.values())
    return RepeatSummary(len(apart), steady)


def throughput_noise(repeats: Repeats, profiles: Mapping[str, Profile]) -> float | None:
    """Median share by which two runs of the same jobs differ in throughput; None without any."""

    def throughput(run: Run) -> float:
        return sum(profiles[each.workload.name].step_s / each.step_s for each in run.tenants)

    apart = [abs(throughput(again) / throughput(first) - 1) for first, again in repeats]
    return median(apart) if apart else None


def _apart(first: Run, again: Run) -> list[float]:
    return [
        abs(second.step_s / once.step_s - 1)
        for once, second in zip(first.tenants, again.tenants, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of jobs inside their 90 % interval.

    Attributes:
        low: Lower end of its 95 % interval under a bootstrap over families; None if there is
            one family only.
        high: Upper end.
    """

    share: float
    low: float | None
    high: float | None


def coverage_of(jobs: Sequence[JobComparison]) -> Coverage:
    """Coverage of `jobs`, each of which has an interval; the same draws for the same jobs."""
    families = sorted({job.family for job in jobs})
    inside = np.array([sum(j.inside for j in jobs if j.family == each) for each in families])
    count = np.array([sum(j.family == each for j in jobs) for each in families])
    share = float(inside.sum() / count.sum())
    if len(families) < _FEWEST_FAMILIES:
        return Coverage(share, None, None)
    equal = np.full(len(families), 1 / len(families))
    draws = np.random.default_rng(_SEED).multinomial(len(families), equal, size=_DRAWS)
    shares = draws @ inside / (draws @ count)
    low, high = np.quantile(shares, (0.025, 0.975))
    return Coverage(share, float(low), float(high))


def mean_width(jobs: Sequence[JobComparison]) -> float:
    """Mean over `jobs` of the interval's width, as a share of the predicted step."""
    return float(np.mean([(j.predicted_s.p95 - j.predicted_s.p05) / j.predicted_s.p50
                          for j in jobs]))  # fmt: skip
