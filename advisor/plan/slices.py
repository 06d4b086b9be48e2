"""The largest batch of a job that each slice of a GPU holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import profiles_named
from advisor.plan.rules import FitsMemory
from advisor.plan.values import Standing
from advisor.prediction.other_batch import FARTHEST, at_batch
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.prediction.surrogate_predictor import Predicts
from advisor.sharing import Instance, Mig, Serial
from advisor.workload.profile import Profile, batch_name

WHOLE = "whole"
"""Instead of a MIG profile: the GPU with MIG off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBatch:
    """The largest batch on one kind of slice.

    Attributes:
        name: Name of the MIG profile, or `WHOLE`.
        instances: How many such instances the GPU holds.
        largest: The largest batch size that fits even at the upper end of its memory; None where
            not even the smallest one does.
        open_ended: Whether a larger batch size, beyond what can be estimated, may fit.
        memory_mib: Memory of the job at that batch size; None where none fits.
    """

    name: str
    instances: int
    capacity_mib: float
    largest: int | None
    open_ended: bool
    memory_mib: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesForJob:
    """The largest batch of one job on each kind of slice.

    Attributes:
        job: The workload's name without a batch size.
        measured: Batch sizes at which the job was measured, increasing.
        slices: The slices, smallest first.
        confirmed_on_hardware: Whether all of it is confirmed by real runs of this kind.
    """

    gpu: Gpu
    job: str
    measured: tuple[int, ...]
    slices: tuple[SliceBatch, ...]
    confirmed_on_hardware: bool
    standing: Standing = field(default_factory=Standing)


def slices_for_job(
    profiles: Sequence[Profile], gpu: Gpu, predictor: Predicts, on: Sequence[str] = ()
) -> SlicesForJob:
    """Return the largest batch of one workload on slices of `gpu`.

    Args:
        profiles: Its profile at each batch size measured, at least one.
        gpu: The GPU that all of them are of.
        predictor: Predicts it.
        on: Names of MIG profiles, or `WHOLE`; none: all of the GPU's, and the whole GPU.

    Raises:
        InvalidInput: The profiles differ in more than their batch size.
        NothingFits: The GPU has no MIG, and a slice of it is asked about.
    """
    measured = tuple(sorted(each.workload.batch for each in profiles))
    slices = tuple(_on_slice(profiles, measured, gpu, predictor, kind) for kind in _kinds(gpu, on))
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


def _kinds(gpu: Gpu, on: Sequence[str]) -> list[MigProfile | None]:
    """Return the kinds of slices asked about; None stands for the whole GPU."""
    if not on:
        return [*mig_kinds(gpu), None]
    names = [name for name in on if name != WHOLE]
    return [*(mig_kinds(gpu, names) if names else []), *([None] if WHOLE in on else [])]


def _on_slice(
    profiles: Sequence[Profile],
    measured: Sequence[int],
    gpu: Gpu,
    predictor: Predicts,
    kind: MigProfile | None,
) -> SliceBatch:
    sharing = Serial() if kind is None else Mig((Instance(kind.name, None),))
    fits_memory = FitsMemory(gpu)

    def mix(batch: int) -> MixPrediction:
        return predictor.predict([at_batch(tuple(profiles), batch)], sharing)

    def holds(batch: int) -> bool:
        """Check that a batch fits without giving up a cache, at the upper end of what it takes."""
        alone = mix(batch)
        within = alone.jobs[0].memory_interval_mib.p95 <= alone.memory_capacity_mib
        return within and fits_memory.broken(alone) is None

    largest: int | None = measured[0]
    open_ended = True
    if len(measured) < 2:
        if fits_memory.broken(mix(measured[0])) is not None:
            largest, open_ended = None, False
    elif not holds(fits := ceil(measured[0] / FARTHEST)):
        largest, open_ended = None, False
    elif holds(breaks := int(measured[-1] * FARTHEST)):
        largest = breaks
    else:
        while breaks - fits > 1:
            middle = (fits + breaks) // 2
            fits, breaks = (middle, breaks) if holds(middle) else (fits, middle)
        largest, open_ended = fits, False
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
    """Speed of one job on one kind of instance, with the rest of the GPU idle.

    Attributes:
        where: The MIG profile's name, or `WHOLE`.
        compute_share: Share of the GPU's compute slices, 0..1.
        speed: Speed over the median speed on the whole GPU; None: the job does not fit.
    """

    job: str
    where: str
    compute_share: float
    speed: Interval | None


def slice_speeds(
    profiles: Sequence[Profile], gpu: Gpu, predictor: Predicts
) -> tuple[SliceSpeed, ...]:
    """Each of `profiles` on each kind of instance, smallest first, then on the whole GPU.

    Raises:
        NothingFits: The GPU has no MIG, or a job is too big for it.
    """
    if not gpu.mig:
        raise NothingFits(f"{gpu.key} has no MIG: its jobs share by time slices or MPS.")
    return tuple(found for profile in profiles for found in _speeds(profile, gpu, predictor))


def _speeds(profile: Profile, gpu: Gpu, predictor: Predicts) -> Iterator[SliceSpeed]:
    fits = FitsMemory(gpu)
    whole = predictor.predict([profile], Serial())
    if fits.broken(whole) is not None:
        raise NothingFits(f"{profile.name} does not fit on {gpu.key}, not even alone.")
    full_s = whole.jobs[0].step_s
    most = max(each.compute_slices for each in gpu.mig)
    for kind in mig_kinds(gpu):
        part = predictor.predict([profile], Mig((Instance(kind.name, None),)))
        speed = None if fits.broken(part) else _speed(full_s, part.jobs[0].step_s)
        yield SliceSpeed(profile.name, kind.name, kind.compute_slices / most, speed)
    yield SliceSpeed(profile.name, WHOLE, 1.0, _speed(full_s, full_s))


def _speed(full_s: Interval, part_s: Interval) -> Interval:
    return Interval(*(full_s.p50 / each for each in (part_s.p95, part_s.p50, part_s.p05)))
