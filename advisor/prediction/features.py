"""What the regression sees of each job in a mix: numbers that name the physics replay misses."""

from collections.abc import Sequence

import numpy as np

from advisor.gpu.catalogue import Gpu
from advisor.prediction.rehearsal import limit_shares
from advisor.prediction.script import Floats
from advisor.sharing import Mps, Naive
from advisor.workload.profile import Profile

FEATURES = (
    "log_replayed_slowdown",  # how crowded replay finds it
    "log_degree",
    "busy_share",  # the job's GPU time over its step, alone
    "mates_busy",  # the others' at their replayed pace, summed
    "dram",  # the job's DRAM activity while the GPU works for it
    "mates_dram",  # the others' at their replayed pace, summed
    "dram_times_mates",
    "occupancy",
    "mates_occupancy",
    "log_kernel_us",  # long kernels make short ones wait
    "log_mates_kernel_us",
    "log_alone_under_mps",  # what being an MPS client costs or gains alone
    "log_limit",
    "limits_over_one",  # how far the limits together exceed the GPU
)


def features(
    profiles: Sequence[Profile], sharing: Naive | Mps, gpu: Gpu, replayed_s: Floats
) -> Floats:
    """One row for each job, one column for each of `FEATURES`, shape (jobs, features)."""
    alone_s = np.array([each.step_s for each in profiles])
    speed = alone_s / replayed_s
    busy = np.array([each.busy_share or 1.0 for each in profiles])
    dram = np.array([_counter(each, "dram_active") for each in profiles])
    occupancy = np.array([_counter(each, "sm_occupancy") for each in profiles])
    kernel_us = np.array([_kernel_us(each) for each in profiles])
    limits = sharing.limits if isinstance(sharing, Mps) else ()
    shares = np.array(limit_shares(limits, gpu) or [1.0] * len(profiles))
    columns = {
        "log_replayed_slowdown": -np.log(speed),
        "log_degree": np.full(len(profiles), np.log(len(profiles))),
        "busy_share": busy,
        "mates_busy": _of_mates(busy * speed),
        "dram": dram / busy,
        "mates_dram": _of_mates(dram * speed),
        "dram_times_mates": dram / busy * _of_mates(dram * speed),
        "occupancy": occupancy / busy,
        "mates_occupancy": _of_mates(occupancy * speed),
        "log_kernel_us": np.log(kernel_us),
        "log_mates_kernel_us": _mean_of_mates(np.log(kernel_us), busy * speed),
        "log_alone_under_mps": np.array([_under_mps(each) for each in profiles]),
        "log_limit": np.log(shares),
        "limits_over_one": np.full(len(profiles), max(0.0, float(shares.sum()) - 1)),
    }
    return np.column_stack([columns[name] for name in FEATURES])


def _counter(profile: Profile, name: str) -> float:
    """A GPM counter; where the profile has none, a middling share of its busy time."""
    measured = getattr(profile.counters, name, None)
    return 0.3 * (profile.busy_share or 1.0) if measured is None else float(measured)


def _kernel_us(profile: Profile) -> float:
    """Duration of the kernel that is running at a random busy moment."""
    if profile.trace is None:
        return 100.0
    us = np.asarray(profile.trace.duration_us)
    return float((us * us).sum() / max(us.sum(), 1e-9)) + 1.0


def _under_mps(profile: Profile) -> float:
    return (
        0.0 if profile.mps is None else float(np.log(profile.mps.unlimited.step_s / profile.step_s))
    )


def _of_mates(values: Floats) -> Floats:
    return np.asarray(values.sum() - values)


def _mean_of_mates(values: Floats, weights: Floats) -> Floats:
    if len(values) == 1:
        return values
    return np.asarray(_of_mates(values * weights) / np.maximum(_of_mates(weights), 1e-9))
