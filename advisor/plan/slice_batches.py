"""Batch sizes on slices: the largest that each holds, and what an example costs there.

Two views: the client uses one slice, and the rest of the GPU is idle; the provider runs a copy of
the job on every slice.

The GPU's power is shared out as in `advisor.prediction.power`, so the example of a client alone
bears all power that keeps the GPU awake.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.mig_rules import profiles_named
from advisor.plan.recommendation import Standing
from advisor.plan.rules import FitsMemory
from advisor.prediction.batch_law import FARTHEST
from advisor.prediction.batch_profile import at_batch
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import Arrangement, Instance, Mig, Serial
from advisor.workload.other_batches import batch_name
from advisor.workload.profile import Profile

WHOLE = "whole"
"""Instead of a MIG profile: the GPU with MIG off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfAnExample:
    """Time and energy of one example; `example_j` is None where power was not measured."""

    example_s: Interval
    example_j: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOnSlice:
    """One batch size on one kind of slice.

    Attributes:
        estimated_from: The batch sizes from whose profiles it is estimated; empty: measured at this
            size.
        client: One example with one busy slice; None where the job does not fit.
        provider: One example of the whole GPU with all slices of this kind busy; None where it does
            not fit.
    """

    batch: int
    estimated_from: tuple[int, ...]
    memory_mib: Interval
    client: OfAnExample | None
    provider: OfAnExample | None

    @property
    def fits(self) -> bool:
        return self.client is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBatches:
    """Batch sizes on one kind of slice.

    Attributes:
        name: Name of the MIG profile, or `WHOLE`.
        instances: How many such instances the GPU holds.
        largest: The largest batch size that fits even at the upper end of its memory; None where
            not even the smallest one does.
        open_ended: Whether a larger batch size, beyond what can be estimated, may fit.
        rows: The batch sizes looked at, increasing.
    """

    name: str
    instances: int
    capacity_mib: float
    largest: int | None
    open_ended: bool
    rows: tuple[BatchOnSlice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesForJob:
    """Which batch sizes of one job fit on which slices, and what they cost.

    Attributes:
        job: The workload's name without a batch size.
        measured: Batch sizes at which the job was measured, increasing.
        slices: The slices, smallest first.
        confirmed_on_hardware: Whether all of it is confirmed by real runs of this kind.
    """

    gpu: Gpu
    job: str
    measured: tuple[int, ...]
    slices: tuple[SliceBatches, ...]
    confirmed_on_hardware: bool
    standing: Standing = field(default_factory=Standing)


def slices_for_job(
    profiles: Sequence[Profile],
    gpu: Gpu,
    predictor: Predicts,
    on: Sequence[str] = (),
    batches: Sequence[int] = (),
) -> SlicesForJob:
    """Time and energy of batch sizes of one workload on slices of `gpu`.

    Args:
        profiles: Its profile at each batch size measured, at least one.
        gpu: The GPU that all of them are of.
        predictor: Predicts it.
        on: Names of MIG profiles, or `WHOLE`; none: all of the GPU's, and the whole GPU.
        batches: Batch sizes to look at; none: those measured, and the largest that fits on each
            slice.

    Raises:
        InvalidInput: A size is too far from those measured, or only one was measured.
        NothingFits: The GPU has no MIG, and a slice of it is asked about.
    """
    job = _AnyBatch(tuple(profiles), gpu, predictor)
    found = [_on_slice(job, each, batches) for each in _kinds(gpu, on)]
    name = batch_name(profiles[0].name)
    return SlicesForJob(
        gpu=gpu,
        job=name.work if name else profiles[0].name,
        measured=job.measured,
        slices=tuple(found),
        confirmed_on_hardware=not any(each.is_estimate for each in profiles)
        and all(each.name == WHOLE for each in found)
        and not any(row.estimated_from for each in found for row in each.rows),
    )


@dataclass(frozen=True, slots=True)
class _AnyBatch:
    """A workload at any batch size, on a GPU."""

    profiles: tuple[Profile, ...]
    gpu: Gpu
    predictor: Predicts

    @property
    def measured(self) -> tuple[int, ...]:
        return tuple(sorted(each.workload.batch for each in self.profiles))

    def mix(self, batch: int, kind: MigProfile | None, copies: int = 1) -> MixPrediction:
        profile = at_batch(self.profiles, batch)
        sharing: Arrangement = Serial()
        if kind is not None:
            sharing = Mig((Instance(kind.name, None),) * copies)
        return self.predictor.predict([profile] * copies, sharing)

    def fits(self, batch: int, kind: MigProfile | None) -> bool:
        return FitsMemory(self.gpu).broken(self.mix(batch, kind)) is None

    def holds(self, batch: int, kind: MigProfile | None) -> bool:
        """Whether it fits without giving up a cache, at the upper end of what it takes."""
        mix = self.mix(batch, kind)
        fits = FitsMemory(self.gpu).broken(mix) is None
        return fits and mix.jobs[0].memory_interval_mib.p95 <= mix.memory_capacity_mib


def _kinds(gpu: Gpu, on: Sequence[str]) -> Iterable[MigProfile | None]:
    """The MIG profiles asked about, smallest memory first; None stands for the whole GPU."""
    # Instances with media engines are equal to those without for a training job.
    names = on or (*(each.name for each in gpu.mig if "+" not in each.name), WHOLE)
    slices = [name for name in names if name != WHOLE]
    named = profiles_named(gpu, slices) if slices else ()
    kinds = sorted(named, key=lambda each: (each.memory_mib, each.compute_slices))
    return (*kinds, None) if WHOLE in names else kinds


def _on_slice(job: _AnyBatch, kind: MigProfile | None, batches: Sequence[int]) -> SliceBatches:
    largest, open_ended = _largest(job, kind)
    sizes = {*batches} or {*job.measured, *([largest] if largest else [])}
    first = job.mix(job.measured[0], kind)
    return SliceBatches(
        name=WHOLE if kind is None else kind.name,
        instances=1 if kind is None else kind.max_instances,
        capacity_mib=first.memory_capacity_mib,
        largest=largest,
        open_ended=open_ended,
        rows=tuple(_row(job, kind, batch) for batch in sorted(sizes)),
    )


def _largest(job: _AnyBatch, kind: MigProfile | None) -> tuple[int | None, bool]:
    """The largest batch size that fits, by bisection, and whether a larger one may."""
    measured = job.measured
    if len(measured) < 2:
        return (measured[0], True) if job.fits(measured[0], kind) else (None, False)
    fits, breaks = ceil(measured[0] / FARTHEST), int(measured[-1] * FARTHEST)
    if not job.holds(fits, kind):
        return None, False
    if job.holds(breaks, kind):
        return breaks, True
    while breaks - fits > 1:
        middle = (fits + breaks) // 2
        if job.holds(middle, kind):
            fits = middle
        else:
            breaks = middle
    return fits, False


def _row(job: _AnyBatch, kind: MigProfile | None, batch: int) -> BatchOnSlice:
    if batch < 1:
        raise InvalidInput(f"a batch has at least 1 example, got {batch}")
    alone, others = job.mix(batch, kind), at_batch(job.profiles, batch).other_batches
    fits = FitsMemory(job.gpu).broken(alone) is None
    copies = 1 if kind is None else kind.max_instances
    return BatchOnSlice(
        batch=batch,
        estimated_from=others.batches if others else (),
        memory_mib=alone.jobs[0].memory_interval_mib,
        client=_of_an_example(alone, batch) if fits else None,
        provider=_of_an_example(job.mix(batch, kind, copies), batch) if fits else None,
    )


def _of_an_example(mix: MixPrediction, batch: int) -> OfAnExample:
    """Time and energy of one example of all jobs of `mix`, which are equal."""
    job = mix.jobs[0]
    return OfAnExample(
        example_s=job.step_s.scaled(1 / (batch * len(mix.jobs))), example_j=job.energy_example_j
    )
