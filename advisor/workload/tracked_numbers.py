"""Pace, memory, power and utilisation of a job, from a run that MLflow or radT tracked.

Names of metrics: MLflow's system metrics (``system/gpu_0_...``, of which a megabyte is 1e6 bytes),
and radT 0.2's of its listener ``smi`` (``system/SMI - ...``, MiB and shares; -1 where there was no
reading). Both meter the whole GPU.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from advisor.errors import InvalidInput
from advisor.workload.tracked_runs import Point, TrackedRun

_STEP_S = re.compile(
    r"(?:train(?:ing)?[/_])?(?:step_s|(?:step|batch)_time(?:_s)?|(?:seconds|time)_per_step)"
)
_PER_S = re.compile(
    r"(?:train(?:ing)?[/_])?(?:(?:examples|samples|images)_per_s(?:ec(?:ond)?)?|throughput)"
)
_EPOCH_S = re.compile(
    r"(?:train(?:ing)?[/_])?(?:epoch_s|epoch_time(?:_s)?|(?:seconds|time)_per_epoch)"
)
_BATCH = re.compile(r"(?:per_device_)?(?:train_)?(?:batch(?:[_-]?size)?|bs|b)")
_MLFLOW_GPU = re.compile(r"system/gpu_(\d+)_")

_MIB_PER_MB = 1e6 / 2**20
# The first of its points are warm-up.
_WARM = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedNumbers:
    """Numbers of one run; fields as in `advisor.workload.minimal_profile.MinimalProfile`.

    Attributes:
        paced_by: Name of the metric that tells the pace.
    """

    batch_size: int
    step_s: float
    memory_mib: float | None
    power_w: float | None
    gpu_utilization: float | None
    memory_utilization: float | None
    paced_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How to read runs that do not say it themselves.

    Attributes:
        batch_size: Examples a step; None: taken from the run's parameters.
        examples_per_epoch: Examples of one pass; None: not known.
        step_metric: Metric that is logged with the number of training steps; None: found by name.
        epoch_metric: Metric that is logged once a pass; None: found by name.
    """

    batch_size: int | None = None
    examples_per_epoch: int | None = None
    step_metric: str | None = None
    epoch_metric: str | None = None


def numbers_of(run: TrackedRun, how: Reading) -> TrackedNumbers:
    """The numbers of the job in `run`.

    Raises:
        InvalidInput: It has no pace or no batch size, or ran on several GPUs.
    """
    batch = how.batch_size or _batch(run)
    step_s, metric = _pace(run, how, batch)
    mlflow = _mlflow_gpu(run)

    def mean(radt: str, name: str, scale: float = 1.0) -> float | None:
        return _metered(run, radt, mlflow and mlflow + name, scale, fmean)

    share = mean("GPU Util", "utilization_percentage", 0.01)
    return TrackedNumbers(
        batch_size=batch,
        step_s=step_s,
        memory_mib=_metered(
            run, "Mem Used", mlflow and mlflow + "memory_usage_megabytes", _MIB_PER_MB, max
        ),
        power_w=mean("Power Draw", "power_usage_watts"),
        gpu_utilization=None if share is None else min(1.0, share),
        memory_utilization=_metered(run, "Mem Util", None, 1.0, fmean),
        paced_by=metric,
    )


def _batch(run: TrackedRun) -> int:
    said = {name: value for name, value in run.params.items() if _BATCH.fullmatch(name.lower())}
    sizes = {int(value) for value in said.values() if value.strip().isdigit() and int(value) > 0}
    if len(sizes) != 1:
        found = ", ".join(f"{name}={value}" for name, value in said.items()) or "none"
        raise InvalidInput(
            f"its parameters do not say one batch size (found: {found}). Say --batch-size"
        )
    return sizes.pop()


def _pace(run: TrackedRun, how: Reading, batch: int) -> tuple[float, str]:
    """Seconds of a step, and the metric that tells it."""
    per_epoch = None if how.examples_per_epoch is None else how.examples_per_epoch / batch
    if how.step_metric is not None:
        return _by_clock(run, how.step_metric), how.step_metric
    if how.epoch_metric is not None:
        steps = _known(per_epoch)
        return _by_clock(run, how.epoch_metric) / steps, how.epoch_metric
    by_name: tuple[tuple[re.Pattern[str], Callable[[float], float]], ...] = (
        (_STEP_S, lambda value: value),
        (_PER_S, lambda value: batch / value),
        (_EPOCH_S, lambda value: value / _known(per_epoch)),
    )
    for names, step_s in by_name:
        for name, points in run.metrics.items():
            if names.fullmatch(name.lower()) and (value := _typical(points)) > 0:
                return step_s(value), name
    own = [name for name in run.metrics if not name.startswith("system/")]
    raise InvalidInput(
        f"no metric of it is known to say the pace. Name one whose step counts training steps "
        f"(--step-metric), or that is logged once an epoch (--epoch-metric). It has: "
        f"{', '.join(own[:8]) or 'none of its own'}"
    )


def _known(steps_per_epoch: float | None) -> float:
    if steps_per_epoch is None:
        raise InvalidInput("its pace is known by epochs only. Say --examples-per-epoch")
    return steps_per_epoch


def _typical(points: Sequence[Point]) -> float:
    return median(each.value for each in points[int(_WARM * len(points)) :])


def _by_clock(run: TrackedRun, metric: str) -> float:
    """Seconds between the steps at which `metric` was logged, by the times of its points."""
    points = run.metrics.get(metric, ())
    late = points[int(_WARM * len(points)) :]
    spans = [
        (later.at_s - earlier.at_s) / (later.step - earlier.step)
        for earlier, later in pairwise(late)
        if later.step > earlier.step
    ]
    if not spans or not (middle := median(spans)) > 0:
        raise InvalidInput(f"{metric}: it was not logged at several steps, so it says no pace")
    return middle


def _mlflow_gpu(run: TrackedRun) -> str | None:
    found = {match[0] for name in run.metrics if (match := _MLFLOW_GPU.match(name))}
    if len(found) > 1:
        raise InvalidInput("it was on several GPUs; a profile is of a job on one")
    return next(iter(found), None)


def _metered(
    run: TrackedRun, radt: str, mlflow: str | None, scale: float,
    of: Callable[[Sequence[float]], float],
) -> float | None:  # fmt: skip
    """A reading by radT, where -1 means none; else by MLflow, times `scale`."""
    theirs = [each.value for each in run.metrics.get(f"system/SMI - {radt}", ()) if each.value >= 0]
    if theirs:
        return of(theirs)
    ours = [each.value * scale for each in run.metrics.get(mlflow or "", ())]
    return of(ours) if ours else None
