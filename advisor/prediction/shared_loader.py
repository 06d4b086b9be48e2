"""Predicts jobs at the same time whose batches come from one data loader.

The loader is a process with its workers. It makes each batch once, puts it on the GPU, and all jobs
receive it there; none is further ahead than its buffer, so they advance at the pace of the slowest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.host import core_seconds, on_host
from advisor.prediction.prediction import MixPrediction
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.groups import running_together
from advisor.workload.profile import HostSide, Memory, Profile
from advisor.workload.profile_checks import at_pace

Loader = tuple[int, ...]
"""Positions of the jobs that share a loader, at least two."""

# Seconds of a core for a batch: of a job that receives it, and of the loader that hands it on, to
# which each MiB of it adds: chosen by cells of ``benchmarks/shared-loader``, and by 44 batches of
# 36.8 MiB a second that four jobs received on an H200.
_RECEIVE_S = 0.003
_SEND_S, _SEND_S_PER_MIB = 0.002, 0.0005
# Batches on the GPU, as `advisor.shared_loader` keeps them: a pair of the loader, and in each job.
_OF_LOADER, _OF_JOB = 2, 5
# Bytes of a colour of a pixel in a batch, and colours.
_PIXEL_BYTES = 4 * 3
# Steps that differ by less are equal: no job waits for another.
_EQUAL = 1e-3


@cached_by_profiles
def of_one_loader(profile: Profile) -> Profile:
    """Return `profile` of a job that shares its data loader with others."""
    return replace(profile, workload=replace(profile.workload, shared_loader=True))


def loaders(profiles: Sequence[Profile], sharing: Sharing) -> tuple[Loader, ...]:
    """Return the loaders that several of `profiles` share while they run at the same time."""
    if not any(each.workload.shared_loader for each in profiles):
        return ()
    runs = running_together(sharing, len(profiles))
    sharers = (tuple(at for at in run if profiles[at].workload.shared_loader) for run in runs)
    return tuple(each for each in sharers if len(each) > 1)


def batch_mib(profile: Profile) -> float:
    """Return the size of a batch of images; 0 for other input, whose size is unknown."""
    pixels = (profile.workload.resolution or 0) ** 2
    return profile.workload.batch * pixels * _PIXEL_BYTES / 2**20


@dataclass(frozen=True, slots=True)
class LoaderWork:
    """Seconds of a batch on the host.

    Attributes:
        main_s: Of the job's own process, without its loader.
        path_s: Between two batches of the loader with nothing else to do.
        cores_s: Core seconds of the loader's workers.
    """

    main_s: float
    path_s: float
    cores_s: float


def loader_work(profile: Profile) -> LoaderWork | None:
    """Return the host work of a job with a loader; None if it has none, or it is unknown.

    If the parts were not measured apart, its processes count as equally busy.
    """
    host, workers, total_s = profile.host, profile.workload.loader_workers, core_seconds(profile)
    if not workers or total_s is None or profile.host_s is None:
        return None
    if host is not None and host.main_s is not None and host.loader_s is not None:
        return LoaderWork(host.main_s, host.loader_s, total_s - host.main_s)
    main_s = total_s / (1 + workers)
    return LoaderWork(main_s, profile.host_s, total_s - main_s)


def waits_for_loader(profile: Profile) -> bool:
    """Return whether the host path of a job is its data loader rather than its own process."""
    work = loader_work(profile)
    return work is not None and work.path_s > work.main_s


def send_s(profile: Profile) -> float:
    """Return core seconds in which the loader's own process hands on a batch."""
    return _SEND_S + _SEND_S_PER_MIB * batch_mib(profile)


def loader_cores_s(profile: Profile) -> float:
    """Return core seconds of a batch of the loader that jobs share."""
    work = loader_work(profile)
    return send_s(profile) + (work.cores_s if work else 0.0)


def as_consumers(profiles: Sequence[Profile], shared: Sequence[Loader]) -> list[Profile]:
    """Return `profiles`, with those that share a loader as `consumer` makes them."""
    members = list(profiles)
    for loader in shared:
        for at in loader:
            members[at] = consumer(profiles[at], len(loader))
    return members


def busy_cores(profiles: Sequence[Profile], mix: MixPrediction) -> float | None:
    """Return the mean number of host cores that `mix` keeps busy, of jobs in turn the most.

    None: the host work of a job is unknown.
    """
    shared = loaders(profiles, mix.sharing)
    seconds = works_s(as_consumers(profiles, shared), shared)
    if None in seconds:
        return None
    busy = [(s or 0.0) / job.step_s.p50 for s, job in zip(seconds, mix.jobs, strict=True)]
    return max(sum(busy[at] for at in run) for run in running_together(mix.sharing, len(busy)))


def host_memory_mib(profiles: Sequence[Profile], sharing: Sharing) -> float | None:
    """Return the host memory of the jobs at the same time, as measured alone; None: not measured.

    A shared loader has the workers of one job, and its own process; processes count as equal.
    """
    if any(each.host_memory_mib is None for each in profiles):
        return None
    held = [each.host_memory_mib or 0.0 for each in profiles]
    for first, *others in loaders(profiles, sharing):
        own = [held[at] / profiles[at].workload.cores for at in (first, *others)]
        for at, process_mib in zip((first, *others), own, strict=True):
            held[at] = process_mib
        held[first] += profiles[first].host_memory_mib or 0.0
    return max(sum(held[at] for at in run) for run in running_together(sharing, len(held)))


@cached_by_profiles
def consumer(profile: Profile, jobs: int) -> Profile:
    """Convert `profile` to one of so many jobs that receive its batches from one loader.

    Its host path is its own work and what receiving costs, or the loader if that is slower; its
    memory includes the batches that wait in it, and its part of what the loader holds on the GPU.
    """
    work = loader_work(profile)
    assert work is not None, "checked where the loader is shared"
    main_s = work.main_s + _RECEIVE_S
    path_s = max(main_s, work.path_s, send_s(profile))
    slower = on_host(profile, path_s / max(work.main_s, work.path_s))
    buffer_mib = (_OF_LOADER / jobs + _OF_JOB) * batch_mib(profile)

    def beside_loader(memory: Memory) -> Memory:
        held = memory.allocated_mib, memory.reserved_mib
        allocated, reserved = (each and each + buffer_mib for each in held)
        process_mib = buffer_mib + (memory.context_mib or 0.0) / jobs
        device = memory.device_mib and memory.device_mib + process_mib
        return replace(memory, allocated_mib=allocated, reserved_mib=reserved, device_mib=device)

    return replace(
        slower,
        host=replace(
            slower.host or HostSide(), main_s=main_s, loader_s=path_s, loader_cpu_s=work.cores_s
        ),
        memory=beside_loader(slower.memory),
        mps=slower.mps and replace(slower.mps, memory=beside_loader(slower.mps.memory)),
    )


def works_s(profiles: Sequence[Profile], shared: Sequence[Loader]) -> list[float | None]:
    """Return core seconds of a step of each of `profiles`; the first of a loader has the loader's.

    Those that share a loader are as `consumer` makes them.
    """
    seconds = [core_seconds(each) for each in profiles]
    for first, *others in shared:
        for at in (first, *others):
            host = profiles[at].host
            seconds[at] = None if host is None else host.main_s
        seconds[first] = (seconds[first] or 0.0) + loader_cores_s(profiles[first])
    return seconds


def at_one_pace(
    predict: Callable[[Sequence[Profile], Arrangement], MixPrediction],
    shared: Sequence[Loader],
) -> Callable[[Sequence[Profile], Arrangement], MixPrediction]:
    """Return `predict` for jobs of which those that share a loader wait for the slowest of them."""

    def predicted(profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        mix = predict(profiles, sharing)
        waiting = list(profiles)
        for loader in shared:
            pace_s = max(mix.jobs[at].step_s.p50 for at in loader)
            for at in loader:
                if mix.jobs[at].step_s.p50 < pace_s * (1 - _EQUAL):
                    waiting[at] = _waiting(profiles[at], pace_s)
        if waiting == list(profiles):
            return mix
        mix = predict(waiting, sharing)
        jobs = list(mix.jobs)
        for loader in shared:
            pace_s = max(jobs[at].step_s.p50 for at in loader)
            for at in loader:
                # Steps alone are those of the profile that does not wait.
                slowdown = jobs[at].slowdown * waiting[at].step_s / profiles[at].step_s
                job = replace(jobs[at], slowdown=slowdown)
                jobs[at] = job.longer(max(1.0, pace_s / job.step_s.p50))
        return replace(mix, jobs=tuple(jobs), weighted_speedup=sum(1 / j.slowdown for j in jobs))

    return predicted


@cached_by_profiles
def _waiting(profile: Profile, pace_s: float) -> Profile:
    """Convert `profile` to a job whose batches come each `pace_s`, at least as long as its step."""
    stretch = max(1.0, pace_s / profile.step_s)
    host_s = profile.host_s or profile.step_s
    return at_pace(profile, stretch, max(1.0, pace_s / host_s))
