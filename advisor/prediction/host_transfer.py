"""Converts a profile to a host of another speed.

A step's host path is the host's and not the workload's: on another machine, or in another minute
on a virtual one, the same Python and the same launches take longer or shorter. A fixed piece of
host work (`advisor.measure.process.cores`) tells by how much.
"""

from dataclasses import replace
from math import inf, log

from advisor.hardware.catalogue import catalogue, known_gpus
from advisor.prediction.cache import once_a_profile
from advisor.prediction.kernel_pace import measured_exponent
from advisor.prediction.stretched_profile import at_pace
from advisor.prediction.trace import waiting_step
from advisor.workload.host_side import HostSide
from advisor.workload.profile import Profile

# A check of a twentieth of a second is a noisy measure of the seconds after it, and is not all that
# a step does: over 114 solo runs of host-bound workloads on seven hosts, log steps followed log
# checks with this slope, which leaves 9 % of a step where the profile alone leaves 24 %.
_TRUST = 0.73
# A check of a second, before the process starts that it is to tell of, tells less: of what such
# checks promised of 379 steps of scripts on nine hosts, this share came true, and 0.58 with a tenth
# host. With each host left out of that, 433 steps are 7.7 % off; with all of it 8.0 %, with nothing
# of it 8.3 %.
_TRUST_IN_PASSING = 0.57 * _TRUST


def host_slowdown(there_s: float, here_s: float, *, in_passing: bool = False) -> float:
    """Factor on host work where the host check takes `here_s` instead of `there_s`."""
    return float((here_s / there_s) ** (_TRUST_IN_PASSING if in_passing else _TRUST))


def on_host_checked(profile: Profile, check_s: float | None) -> Profile:
    """`profile` on a host whose check took `check_s`; unchanged where either check is missing."""
    if profile.host_check_s is None or check_s is None:
        return profile
    return on_host(profile, host_slowdown(profile.host_check_s, check_s))


@once_a_profile
def on_host(profile: Profile, slowdown: float) -> Profile:
    """`profile` on a host that takes `slowdown` times as long for the same work.

    The host path stretches, and with it the step where the host sets its pace. What the GPU does
    in a step stays, so its shares of time shrink as steps grow.
    """
    if profile.host_s is None or slowdown == 1:
        return profile
    trace = profile.trace and profile.trace.launched(slowdown)
    return replace(
        at_pace(profile, _step_s(profile, slowdown) / profile.step_s),
        host_s=profile.host_s * slowdown,
        host=profile.host and _slower(profile.host, slowdown),
        trace=trace,
        host_check_s=profile.host_check_s and profile.host_check_s * slowdown,
        sm_exponent=_kept_exponent(profile),
    )


def _kept_exponent(profile: Profile) -> float | None:
    """How its kernels slow with fewer SMs, which no host changes."""
    card = catalogue().get(profile.gpu) or known_gpus().get(profile.gpu)
    return profile.sm_exponent if card is None else measured_exponent(profile, card)


def _slower(host: HostSide, slowdown: float) -> HostSide:
    """`host` on a slower machine; the amount read from files does not change."""
    times = {
        name: value and value * slowdown
        for name in ("main_s", "loader_s", "loader_cpu_s", "wait_s")
        if (value := getattr(host, name)) is not None
    }
    return replace(host, **times)


def host_path_s(profile: Profile) -> float:
    """Seconds a step's host path takes alone: a step's where it sets the pace; 0 if not known."""
    host_s, gpu_s = profile.host_s or 0.0, profile.gpu_s or 0.0
    return profile.step_s if host_s >= gpu_s else min(host_s, profile.step_s)


def log_beyond_host(profile: Profile, step_s: float) -> float:
    """Log of a step of `step_s` in a mix over the host's path alone, at least 0.

    At 0 the host sets the pace, and a slower host shows in full; mates hide a part of it.
    """
    path_s = host_path_s(profile)
    return max(0.0, log(step_s / path_s)) if path_s else inf


def _step_s(profile: Profile, slowdown: float) -> float:
    """The slower side sets the pace; a host that was the slower one may become the faster.

    Where the host waits for the GPU, both set it.
    """
    if (waiting := waiting_step(profile)) is not None:
        return waiting.changed(host=slowdown).seconds()
    host_s, gpu_s = profile.host_s or 0.0, profile.gpu_s or 0.0
    if host_s >= gpu_s:
        return max(profile.step_s * slowdown, min(gpu_s, profile.step_s))
    return max(profile.step_s, host_s * slowdown)
