"""Features of jobs, alone and in their mix, for the correction of replay."""

from collections.abc import Sequence

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.cache import once_a_profile
from advisor.prediction.capacity import capacity_steps
from advisor.prediction.replay import Replayed
from advisor.prediction.trace import Floats, demand
from advisor.sharing import Concurrent
from advisor.workload.profile import Profile

TRAITS = (
    "over_one_wave",  # share of kernel time in grids of more blocks than fit on the GPU at once
    "log_waves",
    "sm_demand",  # share of the SMs that its kernels can use
    "sm_demand_spread",  # the same if each block had an SM to itself
    "moves_data",  # share of kernel time in kernels that move data rather than multiply
    "multiplies",
    "convolves",
    "wave_tail",  # share of the SMs that last waves leave free
    "log_mean_kernel_us",
    "log_kernels",
    "tensor",  # tensor activity while the GPU works for the job
    "sm_active",  # while the GPU works for the job
    "host_share",  # host path over step
    "log_at_tightest",  # slowdown alone under the tightest limit of the probe
    "log_at_loosest",
)

_MULTIPLY, _CONVOLVE = frozenset({"gemm", "attention", "recurrent"}), frozenset({"conv"})

# Where a share of SMs is below this, a job of large kernels keeps them all busy.
_TYPICAL_DEMAND = 0.85


@once_a_profile
def traits(profile: Profile, gpu: Gpu) -> Floats:
    """Compute `TRAITS` of a job that has a kernel trace, shape (traits,)."""
    trace, at_limits = profile.trace, [0.0, 0.0]
    assert trace is not None
    if profile.mps is not None and profile.mps.limited:
        whole_s = profile.mps.unlimited.step_s
        by_limit = sorted(profile.mps.limited, key=lambda run: run.limit_pct)
        at_limits = [float(np.log(run.step_s / whole_s)) for run in (by_limit[0], by_limit[-1])]
    duration = np.asarray(trace.duration_us)
    weight = duration / max(float(duration.sum()), 1e-9)
    blocks = np.asarray(trace.blocks, dtype=np.float64)
    waves = blocks / (gpu.sms * np.maximum(1, np.asarray(trace.resident_blocks)))
    tail = np.where(waves > 1, 1 - waves / np.maximum(1, np.ceil(waves)), 0.0)
    kind = np.asarray(trace.class_of)
    multiplies, convolves = (
        np.isin(kind, [i for i, name in enumerate(trace.classes) if name in chosen])
        for chosen in (_MULTIPLY, _CONVOLVE)
    )
    columns = (
        waves > 1, np.log(np.maximum(waves, 0.05)), demand(trace, gpu.sms, 0.45),
        np.minimum(1, blocks / gpu.sms), ~(multiplies | convolves), multiplies, convolves, tail,
    )  # fmt: skip
    return np.array([
        *(float((weight * column).sum()) for column in columns),
        float(np.log(duration.mean() + 1e-3)),
        float(np.log(len(duration))),
        _while_busy(profile, "tensor_active", 0.0),
        _while_busy(profile, "sm_active", 0.5),
        (profile.host_s or 0.0) / profile.step_s,
        *at_limits,
    ])  # fmt: skip


def _while_busy(profile: Profile, counter: str, otherwise: float) -> float:
    measured = getattr(profile.counters, counter, None)
    return otherwise if measured is None else measured / (profile.busy_share or 1.0)


def log_slowdown_alone(profile: Profile, share: float, gpu: Gpu) -> float:
    """Return the log of the slowdown of the job alone, if it may use a share of the SMs, 0..1.

    Interpolated, over the log of the share, between the points that the probe measured; without
    a probe, in proportion to the SMs that a job of large kernels misses.
    """
    if profile.mps is None or not profile.mps.limited:
        return max(0.0, float(np.log(_TYPICAL_DEMAND / share)))
    log_shares, logs = _probed(profile, gpu)
    return max(0.0, float(np.interp(np.log(share), log_shares, logs)))


@once_a_profile
def _probed(profile: Profile, gpu: Gpu) -> tuple[Floats, Floats]:
    """Log of the share and of the slowdown at each point of the probe, and unlimited."""
    assert profile.mps is not None
    whole_s = profile.mps.unlimited.step_s
    points = sorted(
        (run.sms / gpu.sms if run.sms else run.limit_pct / 100, float(np.log(run.step_s / whole_s)))
        for run in profile.mps.limited
    )
    shares, logs = np.array([*points, (1.0, 0.0)]).T
    return np.log(shares), logs


def counter(profile: Profile, name: str) -> float:
    """Return a GPM counter; without one, a typical share of its busy time."""
    measured = getattr(profile.counters, name, None)
    return 0.3 * (profile.busy_share or 1.0) if measured is None else float(measured)


IN_COMPANY = (
    "log_replayed_slowdown",  # slowdown by replay
    "log_ceding",  # replay with more SMs ceded to later kernels, over replay
    "log_packing",  # replay with blocks packed more closely on SMs, over replay
    "log_capacity",  # the capacity model over replay
    "log_degree",
    "busy_share",  # the job's GPU time over its step, alone
    "busy_at_pace",  # the same at its replayed pace
    "mates_busy",  # the others' at their replayed pace, summed
    "busy_of_all",  # of all jobs, alone
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
    "log_alone_limited",  # slowdown alone under its limit
    "log_alone_limited_over_replayed",
    "headroom",  # how much less a limit slows it, alone, than its share of the SMs suggests
    "mates_headroom",
    "headroom_times_mates_dram",
)
FEATURES = (*IN_COMPANY, *TRAITS, *(f"mates_{trait}" for trait in TRAITS))


def features(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, replayed: Replayed
) -> Floats:
    """Compute a row for each job with a column for each of `FEATURES`, shape (jobs, features)."""
    step_s, busy, dram, occupancy, log_kernel_us, log_under_mps = np.array(
        [_alone(each) for each in profiles]
    ).T
    speed, degree = step_s / replayed.steps_s, len(profiles)
    steps = capacity_steps(profiles, sharing)
    by_capacity = replayed.steps_s if steps is None else np.array(steps)
    shares = np.array(limit_shares(sharing.limits, gpu.sms) or [1.0] * degree)
    pairs = zip(profiles, shares, strict=True)
    limited = np.array([log_slowdown_alone(each, float(share), gpu) for each, share in pairs])
    headroom = -np.log(shares) - limited
    columns = {
        "log_replayed_slowdown": -np.log(speed),
        "log_ceding": np.log(replayed.ceding_s / replayed.steps_s),
        "log_packing": np.log(replayed.packing_s / replayed.steps_s),
        "log_capacity": np.log(by_capacity / replayed.steps_s),
        "log_degree": np.full(degree, np.log(degree)),
        "busy_share": busy,
        "busy_at_pace": busy * speed,
        "mates_busy": _of_others(busy * speed),
        "busy_of_all": np.full(degree, busy.sum()),
        "dram": dram / busy,
        "mates_dram": _of_others(dram * speed),
        "dram_times_mates": dram / busy * _of_others(dram * speed),
        "occupancy": occupancy / busy,
        "mates_occupancy": _of_others(occupancy * speed),
        "log_kernel_us": log_kernel_us,
        "log_mates_kernel_us": _mean_of_others(log_kernel_us, busy * speed),
        "log_alone_under_mps": log_under_mps,
        "log_limit": np.log(shares),
        "limits_over_one": np.full(degree, max(0.0, float(shares.sum()) - 1)),
        "log_alone_limited": limited,
        "log_alone_limited_over_replayed": limited + np.log(speed),
        "headroom": headroom,
        "mates_headroom": _mean_of_others(headroom, busy * speed),
        "headroom_times_mates_dram": headroom * _of_others(dram * speed),
    }
    company = np.column_stack([columns[name] for name in IN_COMPANY])
    own = np.stack([traits(each, gpu) for each in profiles])
    others = _mean_of_others(np.ascontiguousarray(own.T), busy * speed).T
    return np.hstack([company, own, others])


@once_a_profile
def _alone(profile: Profile) -> tuple[float, ...]:
    """Step, busy share, DRAM, occupancy, log kernel and log under MPS of one job alone."""
    under_mps_s = profile.mps.unlimited.step_s if profile.mps else profile.step_s
    kernel_us = 100.0  # of the kernel that is running at a random busy moment
    if profile.trace is not None:
        us = np.asarray(profile.trace.duration_us)
        kernel_us = float((us * us).sum() / max(us.sum(), 1e-9)) + 1.0
    return (
        profile.step_s,
        profile.busy_share or 1.0,
        counter(profile, "dram_active"),
        counter(profile, "sm_occupancy"),
        float(np.log(kernel_us)),
        float(np.log(under_mps_s / profile.step_s)),
    )


def _of_others(values: Floats) -> Floats:
    """Sum over the other jobs, shape (..., jobs) as of `values`."""
    return np.asarray(values.sum(axis=-1, keepdims=True) - values)


def _mean_of_others(values: Floats, weights: Floats) -> Floats:
    """Mean over the other jobs, weighted by `weights`; of a job alone, its own value."""
    if len(weights) == 1:
        return values
    return np.asarray(_of_others(values * weights) / np.maximum(_of_others(weights), 1e-9))
