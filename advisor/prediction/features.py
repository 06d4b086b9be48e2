"""Features of a job by itself, from its kernels, counters and probe, for the regression."""

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import once_a_profile
from advisor.prediction.trace import Floats, demand
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


# Share of a step from which on the GPU, and not the host, sets the pace.
_GPU_BOUND = 0.9


def is_gpu_bound(profile: Profile) -> bool:
    """Whether the GPU is busy nearly all of the step."""
    return (profile.busy_share or 0.0) >= _GPU_BOUND


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
