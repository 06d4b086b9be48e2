"""Where MIG instances lie, for drawing: memory by memory slices, SMs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.gpu.catalogue import Gpu, MigProfile
from advisor.gpu.layouts import place, profile_of
from advisor.sharing import Arrangement, Compute, Hybrid, Mig, Slot, one_job_each


@dataclass(frozen=True, slots=True)
class Cut:
    """One GPU instance.

    Attributes:
        start_mib: Where its memory begins.
        first_sm: Where its SMs begin, in the order of memory.
    """

    profile: MigProfile
    start_mib: float
    first_sm: float
    sms: float

    @property
    def memory_mib(self) -> float:
        return self.profile.memory_mib

    @property
    def hint(self) -> str:
        return f"{self.profile.name}: {self.profile.memory_mib:,} MiB, {self.sms:.0f} SMs"


def cuts(hybrid: Hybrid, gpu: Gpu) -> list[Cut]:
    """The instance of each place of `hybrid`.

    Raises:
        NothingFits: One has no place on `gpu`.
    """
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, hybrid.instances)
    starts = [each.start or 0 for each in placed]
    profiles = [profile_of(gpu, each.profile) for each in placed]
    firsts: dict[int, float] = {}
    left = 0.0
    for index in sorted(range(len(starts)), key=starts.__getitem__):
        firsts[index] = left
        left += _sms_of(profiles[index], gpu)
    return [
        Cut(profile, start * slice_mib, firsts[index], _sms_of(profile, gpu))
        for index, (profile, start) in enumerate(zip(profiles, starts, strict=True))
    ]


def cuts_of_jobs(sharing: Arrangement, gpu: Gpu, jobs: int) -> Sequence[Cut | None]:
    """The instance that each of `jobs` jobs is on; None without MIG."""
    match sharing:
        case Mig(instances):
            return cuts(one_job_each(instances), gpu)
        case Hybrid(places):
            pairs = zip(places, cuts(sharing, gpu), strict=True)
            found = {job: cut for each, cut in pairs for job in each.jobs}
            return [found[job] for job in sorted(found)]
        case _:
            return [None] * jobs


def sms_on_instances(hybrid: Hybrid, gpu: Gpu) -> list[tuple[float, float, str]]:
    """The SMs that each job may use, from where to where, and a hint, in the jobs' order."""
    found: dict[int, tuple[float, float, str]] = {}
    for each, cut in zip(hybrid.places, cuts(hybrid, gpu), strict=True):
        left = cut.first_sm
        for room in each.rooms:
            slices = room.slices if isinstance(room, Compute) else cut.profile.compute_slices
            right = left + cut.sms * slices / cut.profile.compute_slices
            mates = "" if len(room.jobs) == 1 else f", shared by {len(room.jobs)} jobs"
            hint = f"the {right - left:.0f} SMs of its {_name(room, cut)}{mates}"
            found |= dict.fromkeys(room.jobs, (left, right, hint))
            left = right
    return [found[job] for job in sorted(found)]


def _name(room: Slot | Compute, cut: Cut) -> str:
    part = f"{room.slices}c of " if isinstance(room, Compute) else ""
    return part + cut.profile.name


def _sms_of(profile: MigProfile, gpu: Gpu) -> float:
    """SMs of an instance; its share of the memory slices where nobody counted them."""
    return profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices
