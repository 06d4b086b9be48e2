"""How much of the time the engine and the SMs of a GPU that is cut up by MIG are active.

Under MIG an instance's engine is active while any kernel runs on that instance, and counts for its
part of the GPU's compute slices: so DCGM reckons the whole GPU's activity from its instances', and
so Robroek et al. (2024) report that small parts of a GPU never fill it. SMs count as they are.
"""

from collections.abc import Sequence

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import partition_of
from advisor.hardware.mig_layouts import profile_of
from advisor.prediction.interval import Interval
from advisor.prediction.partition_transfer import on_partition, sm_time
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power, gract, smact
from advisor.sharing import Hybrid, SharedPartition
from advisor.workload.profile import Profile


def gract_on_instances(
    profiles: Sequence[Profile],
    hybrid: Hybrid,
    steps: Sequence[Interval],
    gpu: Gpu,
    constants: tuple[Physics, Power],
) -> float | None:
    """GRACT of `gpu` cut up into instances, 0..1; None without counters.

    Args:
        profiles: The jobs, each measured alone on the whole GPU.
        hybrid: Which of them are on which instance.
        steps: What their steps take there, in the jobs' order.
        gpu: The whole GPU.
        constants: Of the GPU.
    """
    whole = max(row.compute_slices for row in gpu.mig)
    active = 0.0
    for part in hybrid.partitions:
        there = _active(profiles, part, steps, gpu, constants)
        if there is None:
            return None
        active += there * _slices(part, gpu) / whole
    return min(1.0, active)


def smact_on_instances(
    profiles: Sequence[Profile],
    hybrid: Hybrid,
    speeds: Sequence[float],
    gpu: Gpu,
    constants: tuple[Physics, Power],
) -> float | None:
    """SMACT of `gpu` cut up into instances, 0..1; None without GPM counters.

    Args:
        profiles: The jobs, each measured alone on the whole GPU.
        hybrid: Which of them are on which instance.
        speeds: Solo step over step there of each, shape (jobs,).
        gpu: The whole GPU.
        constants: Of the GPU.
    """
    (physics, laws), active = constants, 0.0
    for part in hybrid.partitions:
        assert part.instance is not None, "its jobs are on an instance"
        partition = partition_of(gpu, part.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        paces = [
            speeds[number - 1] * sm_time(job, partition, physics)
            for number, job in zip(part.jobs, jobs, strict=True)
        ]
        law = laws.law(part.sharing.mode, len(jobs), part.sharing.keeps_sms_apart)
        there = smact(jobs, paces, law)
        if there is None:
            return None
        active += min(partition.sm_share, there)
    return active


def _active(
    profiles: Sequence[Profile],
    part: SharedPartition,
    steps: Sequence[Interval],
    gpu: Gpu,
    constants: tuple[Physics, Power],
) -> float | None:
    """Of one instance, or of one compute instance: relative to that."""
    (physics, laws), instance = constants, part.instance
    assert instance is not None, "its jobs are on an instance"
    partition = partition_of(gpu, instance.profile, part.slices)
    moved = [on_partition(profiles[job - 1], partition, physics) for job in part.jobs]
    speeds = [
        min(1.0, alone.step_s / steps[job - 1].p50)
        for job, alone in zip(part.jobs, moved, strict=True)
    ]
    law = laws.law(part.sharing.mode, len(part.jobs), part.sharing.keeps_sms_apart)
    return gract(moved, speeds, law)


def _slices(part: SharedPartition, gpu: Gpu) -> int:
    assert part.instance is not None, "it has compute slices"
    return part.slices or profile_of(gpu, part.instance.profile).compute_slices
