"""How fast each of several jobs runs alone on a MIG instance of each size, and on the whole GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.errors import NothingFits
from advisor.hardware.catalogue import Gpu
from advisor.plan.rules import FitsMemory
from advisor.plan.slice_batches import WHOLE, mig_kinds
from advisor.prediction.interval import Interval
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import Instance, Mig, Serial
from advisor.workload.profile import Profile


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
