"""How fast each of several jobs runs alone on a MIG instance of each size, and on the whole GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.errors import NothingFits
from advisor.hardware.catalogue import Gpu
from advisor.hardware.mig_layouts import profile_of
from advisor.plan.slice_batches import WHOLE, OfAnExample, SliceBatches, slices_for_job
from advisor.prediction.interval import Interval
from advisor.prediction.surrogate_answers import Predicts
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
    batches = [profile.workload.batch]
    *slices, whole = slices_for_job([profile], gpu, predictor, batches=batches).slices
    if (full := _alone(whole)) is None:
        raise NothingFits(f"{profile.name} does not fit on {gpu.key}, not even alone.")
    most = max(each.compute_slices for each in gpu.mig)
    for each in slices:
        share = profile_of(gpu, each.name).compute_slices / most
        yield SliceSpeed(profile.name, each.name, share, _speed(full, _alone(each)))
    yield SliceSpeed(profile.name, WHOLE, 1.0, _speed(full, full))


def _alone(held: SliceBatches) -> OfAnExample | None:
    return held.rows[0].client


def _speed(full: OfAnExample, part: OfAnExample | None) -> Interval | None:
    if part is None:
        return None
    ends = (part.example_s.p95, part.example_s.p50, part.example_s.p05)
    return Interval(*(full.example_s.p50 / each for each in ends))
