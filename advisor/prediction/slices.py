"""A job alone on a MIG instance: estimated from its trace, never confirmed on MIG hardware."""

from advisor.gpu.catalogue import Gpu, MigProfile
from advisor.prediction.rehearsal import Physics
from advisor.prediction.replay import Effort, replay_mps
from advisor.prediction.script import on_part, script
from advisor.workload.profile import Profile


def step_on_instance(profile: Profile, instance: MigProfile, gpu: Gpu, physics: Physics) -> float:
    """Seconds of a step on an instance, by its share of SMs and of memory bandwidth.

    Without a trace the whole GPU path is stretched by what the instance misses of the SMs.
    """
    sms = instance.sms or gpu.sms * instance.compute_slices // 8
    share = min(1.0, sms / gpu.sms)
    whole = script(profile, gpu.sms, physics.packing)
    if whole is None:
        return max(profile.step_s, (profile.gpu_s or profile.step_s) / share)
    bandwidth = instance.memory_slices / gpu.memory_slices
    part = on_part(whole, share, bandwidth, _dram_share(profile))
    alone, there = (
        float(replay_mps([each], [1.0], [1.0], 0.0, Effort())[0]) for each in (whole, part)
    )
    return profile.step_s * max(1.0, there / alone)


def _dram_share(profile: Profile) -> float:
    """Share of DRAM bandwidth in use while the GPU works for the job, 0..1; 0 where unknown."""
    counters = profile.counters
    if counters is None or counters.dram_active is None or not profile.busy_share:
        return 0.0
    return min(1.0, counters.dram_active / profile.busy_share)
