"""The largest batch of a job, and its speed, on each kind of MIG instance and on the whole GPU."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Annotated

from advisor.documents import As, Mark
from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import profiles_named
from advisor.plan import step
from advisor.plan.rules import memory_problem
from advisor.plan.values import Standing
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.other_batch import FARTHEST, at_batch
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.sharing import Instance, Mig, Serial
from advisor.workload.profile import Profile
from advisor.workload.spec import batch_name

WHOLE = "whole"
"""Instead of a MIG profile: the GPU with MIG off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBatch:
    """The largest batch that fits, at the upper end of its memory, on a MIG profile or `WHOLE`.

    If `open_ended`, a larger one, beyond what can be estimated, may fit.
    """

    name: str
    instances: int
    capacity_mib: float
    largest: int | None
    open_ended: bool
    memory_mib: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesForJob:
    """The largest batch of one job, named without a batch size, on each kind of slice.

    The smallest slice is first; `measured` are the batch sizes of its profiles.
    """

    gpu: Annotated[Gpu, As("key")]
    job: str
    measured: tuple[int, ...]
    slices: tuple[SliceBatch, ...]
    confirmed_on_hardware: bool
    standing: Annotated[Standing, Mark.AT_TOP] = field(default_factory=Standing)


def slices_for_job(
    profiles: Sequence[Profile], gpu: Gpu, predictor: Predicts, on: Sequence[str] = ()
) -> SlicesForJob:
    """Return the largest batch of one workload on slices of `gpu`.

    `profiles` are those of its measured batch sizes. `on` are names of MIG profiles, or `WHOLE`;
    none: all of the GPU's, and the whole GPU.

    Raises:
        InvalidInput: The profiles differ in more than their batch size.
        NothingFits: The GPU has no MIG, and a slice of it is asked about.
    """
    measured = tuple(sorted(each.workload.batch for each in profiles))
    kinds: list[MigProfile | None] = [None] if not on or WHOLE in on else []  # the whole GPU
    names = [name for name in on if name != WHOLE]
    if names or not on:
        kinds = [*mig_kinds(gpu, names), *kinds]
    slices = tuple(_on_slice(profiles, measured, gpu, predictor, kind) for kind in kinds)
    name = batch_name(profiles[0].name)
    return SlicesForJob(
        gpu=gpu,
        job=name.work if name else profiles[0].name,
        measured=measured,
        slices=slices,
        confirmed_on_hardware=not any(each.is_estimate for each in profiles)
        and all(each.name == WHOLE and each.largest in (*measured, None) for each in slices),
    )


def mig_kinds(gpu: Gpu, names: Sequence[str] = ()) -> list[MigProfile]:
    """Return the MIG profiles called `names`, or all, smallest memory first.

    Instances with media engines are equal to those without for a training job.
    """
    names = names or [each.name for each in gpu.mig if "+" not in each.name]
    named = profiles_named(gpu, names) if names else ()
    return sorted(named, key=lambda each: (each.memory_mib, each.compute_slices))


def _on_slice(
    profiles: Sequence[Profile],
    measured: Sequence[int],
    gpu: Gpu,
    predictor: Predicts,
    kind: MigProfile | None,
) -> SliceBatch:
    sharing = Serial() if kind is None else Mig((Instance(kind.name),))

    def mix(batch: int) -> MixPrediction:
        step()
        return predictor.predict([at_batch(tuple(profiles), batch)], sharing)

    def holds(batch: int) -> bool:
        """Check that a batch fits at the upper end of its memory, without giving up a cache."""
        alone = mix(batch)
        within = alone.jobs[0].memory_interval_mib.p95 <= alone.memory_capacity_mib
        return within and memory_problem(alone, gpu) is None

    if len(measured) < 2:
        largest = None if memory_problem(mix(measured[0]), gpu) else measured[0]
        open_ended = largest is not None
    else:
        batches = range(ceil(measured[0] / FARTHEST), int(measured[-1] * FARTHEST) + 1)
        fit = bisect_left(batches, True, key=lambda batch: not holds(batch))
        largest, open_ended = batches[fit - 1] if fit else None, fit == len(batches)
    return SliceBatch(
        name=WHOLE if kind is None else kind.name,
        instances=1 if kind is None else kind.max_instances,
        capacity_mib=mix(measured[0]).memory_capacity_mib,
        largest=largest,
        open_ended=open_ended,
        memory_mib=None if largest is None else mix(largest).jobs[0].memory_interval_mib,
    )


@dataclass(frozen=True, slots=True)
class SliceSpeed:
    """Speed of one job on a MIG profile, or on `WHOLE`, with the rest of the GPU idle.

    It is relative to the median on the whole GPU; None: the job does not fit.
    """

    job: str
    where: str
    compute_share: float
    speed: Interval | None


def slice_speeds(
    profiles: Sequence[Profile], gpu: Gpu, predictor: Predicts
) -> tuple[SliceSpeed, ...]:
    """Compute the speed of each profile on each kind of instance, smallest first, and on the GPU.

    Raises:
        NothingFits: The GPU has no MIG, or a job is too big for it.
    """
    if not gpu.mig:
        raise NothingFits(f"{gpu.key} has no MIG: its jobs share by time-slicing or MPS.")
    most, speeds = max(each.compute_slices for each in gpu.mig), []
    for profile in profiles:
        whole = predictor.predict([profile], Serial())
        if memory_problem(whole, gpu):
            raise NothingFits(f"{profile.name} does not fit on {gpu.key} even alone.")
        full_s = whole.jobs[0].step_s
        for kind in mig_kinds(gpu):
            step()
            part = predictor.predict([profile], Mig((Instance(kind.name),)))
            fits = memory_problem(part, gpu) is None
            speed = part.jobs[0].step_s.rate(full_s.p50) if fits else None
            speeds.append(SliceSpeed(profile.name, kind.name, kind.compute_slices / most, speed))
        speeds.append(SliceSpeed(profile.name, WHOLE, 1.0, full_s.rate(full_s.p50)))
    return tuple(speeds)
