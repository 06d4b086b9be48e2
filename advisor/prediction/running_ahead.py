"""A profile of a job whose host waits for the GPU, as if it ran ahead."""

from dataclasses import replace

from advisor.prediction.cache import once_a_profile
from advisor.prediction.stretched_profile import at_pace
from advisor.prediction.trace import waiting_step
from advisor.workload.profile import Profile


@once_a_profile
def running_ahead(profile: Profile) -> Profile:
    """`profile` as of a script that reads nothing from the GPU: the slower side sets the pace.

    Any other than one that waits is as it was.
    """
    waiting, trace = waiting_step(profile), profile.trace
    if waiting is None or trace is None:
        return profile
    on_gpu_s = float((waiting.duration_s + waiting.gap_s).sum())
    step_s = max(waiting.host_s, on_gpu_s)
    return replace(at_pace(profile, step_s / profile.step_s), trace=replace(trace, waits_us=()))
