"""Where the jobs of a plan lie in a GPU: their memory in MiB, their SMs by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import assert_never

from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.gpu_partition import limit_shares
from advisor.hardware.mig_layouts import place, profile_of
from advisor.prediction.mix_prediction import MixPrediction
from advisor.sharing import Arrangement, Hybrid
from advisor.sharing.traversal import instance_sets, memories, restricted, running_together


@dataclass(frozen=True, slots=True)
class InstanceSpot:
    """A MIG instance: where its memory begins, and where its SMs begin in the order of memory."""

    profile: MigProfile
    start_mib: float
    first_sm: float
    sms: float


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one job lies.

    Attributes:
        start_mib: Where its memory begins.
        first_sm: The first of the SMs that it may use, which end at `end_sm`.
        hint: Tooltip: what the job holds.
        cut: The MIG instance that it is on; None without MIG.
    """

    start_mib: float
    first_sm: float
    end_sm: float
    hint: str
    cut: InstanceSpot | None = None


def spots_of(mix: MixPrediction, gpu: Gpu) -> list[Spot]:
    """The spot of each job, in order; in phases, of the jobs of one group after another."""
    sets = [list(range(len(mix.jobs)))]
    if mix.sharing.mode == "phases":
        sets = running_together(mix.sharing, len(mix.jobs))
    found: dict[int, Spot] = {}
    for group in map(sorted, sets):
        sharing = restricted(mix.sharing, group)
        held_mib = [mix.jobs[job].memory_mib for job in group]
        found |= zip(group, _spots_at_once(sharing, held_mib, gpu), strict=True)
    return [found[job] for job in sorted(found)]


def _spots_at_once(sharing: Arrangement, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    jobs, whole = len(held_mib), float(gpu.sms)
    match sharing.mode:
        case "mig" | "hybrid" | "phases":
            (instances,) = instance_sets(sharing)
            return _spots_on_instances(instances, held_mib, gpu)
        case "mps-limits":
            ends = [whole * each for each in limit_shares(sharing.limits, gpu.sms)]
            hints = [f"at most {cap:g} % of the SMs" for cap in sharing.limits]
        case "serial":
            ends, hints = [whole] * jobs, ["all SMs, one job after another"] * jobs
        case "naive":
            ends, hints = [whole] * jobs, ["all SMs, in turns"] * jobs
        case "mps":
            ends, hints = [whole] * jobs, ["whatever SMs the others leave free"] * jobs
        case _:
            assert_never(sharing.mode)
    spans = zip(_memory_starts(sharing, held_mib), ends, hints, strict=True)
    return [Spot(start_mib, 0.0, end, hint) for start_mib, end, hint in spans]


def _memory_starts(sharing: Arrangement, held_mib: Sequence[float]) -> list[float]:
    """Where each job's memory begins, in MiB; without MIG the order is arbitrary."""
    starts = [0.0] * len(held_mib)
    for memory in memories(sharing, len(held_mib)):
        numbers = [number for part in memory for number in part.jobs]
        before_mib = accumulate((held_mib[number - 1] for number in numbers), initial=0.0)
        for number, start_mib in zip(numbers, before_mib, strict=False):
            starts[number - 1] = start_mib
    return starts


def _spots_on_instances(hybrid: Hybrid, held_mib: Sequence[float], gpu: Gpu) -> list[Spot]:
    found: dict[int, Spot] = {}
    for each, cut in zip(hybrid.places, _cuts(hybrid, gpu), strict=True):
        held = (held_mib[number - 1] for number in each.jobs)
        starts_mib = dict(zip(each.jobs, accumulate(held, initial=cut.start_mib), strict=False))
        left = cut.first_sm
        for part in each.partitions:
            name, slices = cut.profile.name, part.slices or cut.profile.compute_slices
            right = left + cut.sms * slices / cut.profile.compute_slices
            whole = name if part.slices is None else f"{part.slices}c of {name}"
            mates = "" if len(part.jobs) == 1 else f", shared by {len(part.jobs)} jobs"
            hint = f"the {right - left:.0f} SMs of its {whole}{mates}"
            found |= {job: Spot(starts_mib[job], left, right, hint, cut) for job in part.jobs}
            left = right
    return [found[number] for number in sorted(found)]


def _cuts(hybrid: Hybrid, gpu: Gpu) -> list[InstanceSpot]:
    """The instance of each place; where its SMs are unknown, by its share of the memory."""
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    starts = [each.start or 0 for each in placed]
    found: dict[int, InstanceSpot] = {}
    left = 0.0
    for index in sorted(range(len(starts)), key=starts.__getitem__):
        profile = profile_of(gpu, placed[index].profile)
        sms = profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices
        found[index] = InstanceSpot(profile, starts[index] * slice_mib, left, sms)
        left += sms
    return [found[index] for index in sorted(found)]
