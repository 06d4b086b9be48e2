"""Features of jobs, alone and in their mix, for the correction of replay."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.cache import once_a_profile
from advisor.prediction.capacity import capacity_steps
from advisor.prediction.replay import Replayed
from advisor.prediction.trace import Floats, demand
from advisor.sharing import Concurrent
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.profile import LimitedRun, Profile

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
    """`TRAITS` of a job that has a kernel trace, shape (traits,)."""
    assert profile.trace is not None
    of_probe = [0.0, 0.0]
    if profile.mps is not None and profile.mps.limited:
        whole_s = profile.mps.unlimited.step_s
        by_limit = sorted(profile.mps.limited, key=lambda run: run.limit_pct)
        of_probe = [float(np.log(run.step_s / whole_s)) for run in (by_limit[0], by_limit[-1])]
    return np.array([
        *_of_kernels(profile.trace, gpu),
        _while_busy(profile, "tensor_active", 0.0),
        _while_busy(profile, "sm_active", 0.5),
        (profile.host_s or 0.0) / profile.step_s,
        *of_probe,
    ])  # fmt: skip


def _of_kernels(trace: KernelTrace, gpu: Gpu) -> list[float]:
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
    averages = [float((weight * column).sum()) for column in columns]
    return [*averages, float(np.log(duration.mean() + 1e-3)), float(np.log(len(duration)))]


def _while_busy(profile: Profile, counter: str, otherwise: float) -> float:
    measured = getattr(profile.counters, counter, None)
    return otherwise if measured is None else measured / (profile.busy_share or 1.0)


def log_slowdown_alone(profile: Profile, share: float, gpu: Gpu) -> float:
    """Log of how much slower the job is alone, if it may use a share of the SMs, 0..1.

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
    points = sorted((_share(run, gpu), float(np.log(run.step_s / whole_s)))
                    for run in profile.mps.limited)  # fmt: skip
    shares, logs = np.array([*points, (1.0, 0.0)]).T
    return np.log(shares), logs


def _share(run: LimitedRun, gpu: Gpu) -> float:
    return run.sms / gpu.sms if run.sms else run.limit_pct / 100


def counter(profile: Profile, name: str) -> float:
    """A GPM counter; without one, a typical share of its busy time."""
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
    """One row for each job, one column for each of `FEATURES`, shape (jobs, features)."""
    jobs = _Jobs(*np.array([_alone(each) for each in profiles]).T)
    speed = jobs.step_s / replayed.steps_s
    columns = (
        _of_replay(profiles, sharing, replayed, speed)
        | _of_load(jobs, speed)
        | _of_limits(profiles, jobs, _shares(sharing, len(profiles), gpu), gpu, speed)
    )
    company = np.column_stack([columns[name] for name in IN_COMPANY])
    own = np.stack([traits(each, gpu) for each in profiles])
    mates = _mean_of_mates(np.ascontiguousarray(own.T), jobs.busy * speed).T
    return np.hstack([company, own, mates])


class _Jobs(NamedTuple):
    """Numbers of each job alone, each of shape (jobs,)."""

    step_s: Floats
    busy: Floats
    dram: Floats
    occupancy: Floats
    log_kernel_us: Floats
    log_under_mps: Floats


@once_a_profile
def _alone(profile: Profile) -> tuple[float, ...]:
    """The numbers of `_Jobs` of one job."""
    under_mps_s = profile.mps.unlimited.step_s if profile.mps else profile.step_s
    return (
        profile.step_s,
        profile.busy_share or 1.0,
        counter(profile, "dram_active"),
        counter(profile, "sm_occupancy"),
        float(np.log(_kernel_us(profile))),
        float(np.log(under_mps_s / profile.step_s)),
    )


def _of_replay(
    profiles: Sequence[Profile], sharing: Concurrent, replayed: Replayed, speed: Floats
) -> dict[str, Floats]:
    steps = capacity_steps(profiles, sharing)
    by_capacity = replayed.steps_s if steps is None else np.array(steps)
    return {
        "log_replayed_slowdown": -np.log(speed),
        "log_ceding": np.log(replayed.ceding_s / replayed.steps_s),
        "log_packing": np.log(replayed.packing_s / replayed.steps_s),
        "log_capacity": np.log(by_capacity / replayed.steps_s),
    }


def _of_load(jobs: _Jobs, speed: Floats) -> dict[str, Floats]:
    busy, dram, degree = jobs.busy, jobs.dram, len(speed)
    return {
        "log_degree": np.full(degree, np.log(degree)),
        "busy_share": busy,
        "busy_at_pace": busy * speed,
        "mates_busy": _of_mates(busy * speed),
        "busy_of_all": np.full(degree, busy.sum()),
        "dram": dram / busy,
        "mates_dram": _of_mates(dram * speed),
        "dram_times_mates": dram / busy * _of_mates(dram * speed),
        "occupancy": jobs.occupancy / busy,
        "mates_occupancy": _of_mates(jobs.occupancy * speed),
        "log_kernel_us": jobs.log_kernel_us,
        "log_mates_kernel_us": _mean_of_mates(jobs.log_kernel_us, busy * speed),
        "log_alone_under_mps": jobs.log_under_mps,
    }


def _shares(sharing: Concurrent, jobs: int, gpu: Gpu) -> Floats:
    """SMs that each job may use, as a share of the GPU's, shape (jobs,)."""
    return np.array(limit_shares(sharing.limits, gpu.sms) or [1.0] * jobs)


def _of_limits(
    profiles: Sequence[Profile], jobs: _Jobs, shares: Floats, gpu: Gpu, speed: Floats
) -> dict[str, Floats]:
    pairs = zip(profiles, shares, strict=True)
    limited = np.array([log_slowdown_alone(each, float(share), gpu) for each, share in pairs])
    headroom = -np.log(shares) - limited
    return {
        "log_limit": np.log(shares),
        "limits_over_one": np.full(len(shares), max(0.0, float(shares.sum()) - 1)),
        "log_alone_limited": limited,
        "log_alone_limited_over_replayed": limited + np.log(speed),
        "headroom": headroom,
        "mates_headroom": _mean_of_mates(headroom, jobs.busy * speed),
        "headroom_times_mates_dram": headroom * _of_mates(jobs.dram * speed),
    }


def _kernel_us(profile: Profile) -> float:
    """Duration of the kernel that is running at a random busy moment."""
    if profile.trace is None:
        return 100.0
    us = np.asarray(profile.trace.duration_us)
    return float((us * us).sum() / max(us.sum(), 1e-9)) + 1.0


def _of_mates(values: Floats) -> Floats:
    """Sum over the other jobs, shape (..., jobs) as of `values`."""
    return np.asarray(values.sum(axis=-1, keepdims=True) - values)


def _mean_of_mates(values: Floats, weights: Floats) -> Floats:
    """Mean over the other jobs, weighted by `weights`; of a job alone, its own value."""
    if len(weights) == 1:
        return values
    return np.asarray(_of_mates(values * weights) / np.maximum(_of_mates(weights), 1e-9))
