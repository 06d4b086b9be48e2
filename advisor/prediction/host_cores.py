"""Host cores as a shared resource: what a step needs, and what too few of them cost.

Jobs with enough cores do not disturb each other. With fewer cores than busy processes, the system
gives each process its turn, so all host work gets longer by one factor: the least at which the jobs
together need no more than the cores there are. A job that still waits for the GPU then is not
slowed.
"""

from collections.abc import Sequence

from advisor.workload.profile import Profile

# Of a factor on host work: beyond it nobody would run so many jobs.
_MOST_STRETCH = 1e6
# Halvings of the interval in which the factor is looked for.
_ROUNDS = 60


def core_seconds(profile: Profile) -> float | None:
    """Core seconds of a step: of the process that launches it and of its loader's workers.

    Spinning waits do not count, since they yield. If the work of a loader was not measured on its
    own, each worker counts as busy while it makes a batch as fast as it can.
    """
    if profile.host_s is None:
        return None
    host, workers = profile.host, profile.workload.loader_workers
    if host is not None and host.main_s is not None:
        return host.main_s + (host.loader_cpu_s or 0.0)
    if not workers or profile.host_cpu_share is None:
        return profile.host_s
    used_s = profile.host_cpu_share * len(profile.cores) * profile.step_s
    return max(profile.host_s, min(used_s, profile.host_s * (1 + workers)))


def stretch_on(profiles: Sequence[Profile], steps_s: Sequence[float], cores: int) -> float:
    """Factor by which host work gets longer if jobs share `cores` cores, at least 1.

    Args:
        profiles: Of jobs that run at the same time; one whose host path is not known needs a core.
        steps_s: Seconds of a step of each with cores enough, shape (jobs,).
        cores: At least 1.
    """
    needs = [_needed(each, step_s) for each, step_s in zip(profiles, steps_s, strict=True)]

    def busy(stretch: float) -> float:
        return sum(work_s / max(step_s, stretch * path_s) for work_s, path_s, step_s in needs)

    if busy(1.0) <= cores:
        return 1.0
    low, high = 1.0, _MOST_STRETCH
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if busy(middle) > cores else (low, middle)
    return high


def _needed(profile: Profile, step_s: float) -> tuple[float, float, float]:
    """Core seconds, seconds of the host path, and seconds of a step."""
    work_s = core_seconds(profile)
    if work_s is None or profile.host_s is None:
        return step_s, step_s, step_s
    return work_s, profile.host_s, step_s
