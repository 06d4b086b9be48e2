"""Converts a profile to a host of another speed.

A step's host path is the host's and not the workload's; a fixed piece of work shows its speed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import geometric_mean

from advisor.hardware.gpus import catalogue, known_gpus
from advisor.hardware.machine import HostCheck
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.trace import measured_exponent, waiting_step
from advisor.workload.profile import Profile
from advisor.workload.profile_checks import at_pace
from advisor.workload.run import Run, Tenant

# The largest factor on host work, and the halvings of the interval in which it is searched.
_MOST_STRETCH, _ROUNDS = 1e6, 60


def core_seconds(profile: Profile) -> float | None:
    """Return core seconds of a step: of the process that launches it and its loader's workers.

    Spinning waits do not count, because they yield. If the work of a loader was not measured on its
    own, a worker counts as busy while it makes a batch as fast as it can.
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


def stretch_on(
    profiles: Sequence[Profile],
    steps_s: Sequence[float],
    cores: float,
    works_s: Sequence[float | None] | None = None,
) -> float:
    """Return the factor by which host work gets longer if jobs share `cores` cores, at least 1.

    Jobs with enough cores do not disturb each other. With fewer cores than busy processes, all host
    work gets longer by one factor: the least at which the jobs together need no more than the cores
    there are. A job that still waits for the GPU then is not slowed; one whose host path is not
    known needs a core. `steps_s` are those with enough cores, `works_s` core seconds of a step of
    each job; None: `core_seconds`.
    """
    if works_s is None:
        works_s = [core_seconds(each) for each in profiles]
    needs = []
    for profile, step_s, work_s in zip(profiles, steps_s, works_s, strict=True):
        if work_s is None or profile.host_s is None:
            needs.append((step_s, step_s, step_s))
        else:  # a path that was timed in a slow moment is still a part of its step
            needs.append((work_s, min(profile.host_s, profile.step_s), step_s))

    def busy(stretch: float) -> float:
        return sum(work_s / max(step_s, stretch * path_s) for work_s, path_s, step_s in needs)

    if busy(1.0) <= cores:
        return 1.0
    low, high = 1.0, _MOST_STRETCH
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if busy(middle) > cores else (low, middle)
    return high


# A check is a noisy measure of the seconds after it, and is not all that a step does: over 114 solo
# runs of host-bound workloads on seven hosts, log steps followed log checks with this slope, which
# leaves 9 % of a step where the profile alone leaves 24 %.
_TRUST = 0.73


def host_factor(profile: Profile, check_s: float | None, solo_s: float | None = None) -> float:
    """Return the factor on the host work of `profile` on another host; 1 if nothing is known of it.

    The factor is the geometric mean of what the check says and of how much longer a step alone
    takes there: over 4,108 steps on 18 hosts both together leave less error than either.

    Args:
        profile: Its step shows the host only if the host sets its pace.
        check_s: Seconds of the host check there.
        solo_s: Seconds of a step alone there.
    """
    factors = []
    if profile.host_check_s and check_s:
        factors.append((check_s / profile.host_check_s) ** _TRUST)
    if solo_s and profile.host_s and profile.host_s >= (profile.gpu_s or 0.0):
        factors.append(solo_s / profile.step_s)
    return geometric_mean(factors) if factors else 1.0


def on_host_checked(profile: Profile, check_s: float | None) -> Profile:
    """Convert `profile` to a host whose check took `check_s`; unchanged if a check is missing."""
    return on_host(profile, host_factor(profile, check_s))


@dataclass(frozen=True, slots=True)
class Host:
    """The host that predictions are for.

    Attributes:
        check: Its speed now; None: not checked.
        solo: The last run of each job alone there, by the job's name.
    """

    check: HostCheck | None
    solo: Mapping[str, Run]

    def factor(self, profile: Profile) -> float:
        """Return the `host_factor` of `profile` here."""
        run = self.solo_run(profile)
        check_s = None if self.check is None else self.check.check_s
        return host_factor(profile, check_s, None if run is None else run.tenants[0].step_s)

    def solo_run(self, profile: Profile) -> Run | None:
        """Return the last run alone of the job of `profile`, if it is newer than the profile."""
        run, made = self.solo.get(profile.name), profile.provenance
        return run if run and made and run.provenance.date > made.date else None

    def convert(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        """Convert `profiles` to this host."""
        return tuple(on_host(each, self.factor(each)) for each in profiles)


@cached_by_profiles
def on_host(profile: Profile, slowdown: float) -> Profile:
    """Convert `profile` to a host that takes `slowdown` times as long for the same work.

    The host path stretches, and with it the step where the host sets its pace. The GPU's work in a
    step stays, so its shares of time shrink as steps grow.
    """
    if profile.host_s is None or slowdown == 1:
        return profile
    card = catalogue().get(profile.gpu) or known_gpus().get(profile.gpu)
    # The slower side sets the pace; both do where the host waits for the GPU.
    host_s, gpu_s = profile.host_s, profile.gpu_s or 0.0
    if (waiting := waiting_step(profile)) is not None:
        step_s = profile.step_s * waiting.growth(host=slowdown)
    elif profile.host_gpu != profile.gpu:  # the rest of its step grows with the slower side
        path_s = min(host_s, profile.step_s)
        step_s = profile.step_s * max(path_s * slowdown, gpu_s) / max(path_s, gpu_s)
    elif host_s >= gpu_s:
        step_s = max(profile.step_s * slowdown, min(gpu_s, profile.step_s))
    else:
        step_s = max(profile.step_s, host_s * slowdown)
    return replace(
        at_pace(profile, step_s / profile.step_s, slowdown),
        sm_exponent=profile.sm_exponent if card is None else measured_exponent(profile, card),
    )


# Share of a step from which on the GPU, and not the host, sets the pace.
_GPU_BOUND = 0.9


def is_gpu_bound(profile: Profile) -> bool:
    """Return whether the GPU is busy nearly all of the step."""
    return (profile.busy_share or 0.0) >= _GPU_BOUND


def host_path_s(profile: Profile) -> float:
    """Return seconds of a step's host path alone: a step's if it sets the pace; 0 if unknown."""
    host_s, gpu_s = profile.host_s or 0.0, profile.gpu_s or 0.0
    return profile.step_s if host_s >= gpu_s else min(host_s, profile.step_s)


def log_beyond_host(profile: Profile, step_s: float) -> float:
    """Return the log of a step of `step_s` in a mix over the host's path alone, at least 0.

    At 0 the host sets the pace, and a slower host shows in full; other jobs hide a part of it.
    """
    path_s = host_path_s(profile)
    return max(0.0, log(step_s / path_s)) if path_s else inf


# Where cores differ by more than this, what the check leaves wrong (12 % of a step in the mean of
# 45 solo runs, against 6 % of 65 others) is larger than the effects of sharing.
_FAR = 1.2


def profiles_on_host(run: Run, profiles: Mapping[str, Profile]) -> tuple[Profile, ...]:
    """Return the profile of each tenant of `run`, converted to the core that it had, in order."""
    return tuple(
        on_host_checked(profiles[each.workload.name], each.host_check_s) for each in run.tenants
    )


def on_like_core(profile: Profile, tenant: Tenant) -> bool:
    """Return whether the core of `tenant` is known to be about as fast as that of `profile`."""
    if tenant.host_check_s is None:
        return False
    ratio = tenant.host_check_s / (profile.host_check_s or tenant.host_check_s)
    return 1 / _FAR < ratio < _FAR


def engine_growth(profile: Profile, busier: float) -> float:
    """Return the factor on the time that the engine is active, if kernels take `busier` times.

    Between kernels that queue up about a microsecond passes, in which the engine counts as active,
    however long they take: 1.3 us in the median of 88 jobs of an H200 and an H100.
    """
    if profile.counters is None or not profile.counters.gract or profile.busy_share is None:
        return busier
    kernels = min(1.0, profile.busy_share / profile.counters.gract)
    return kernels * busier + 1 - kernels
