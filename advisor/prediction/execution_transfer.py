"""Converts the profile of an eager job to another execution: captured in a CUDA graph, or compiled.

A captured step is launched at once, so its host path all but vanishes, and its kernels stay. The
compiler writes kernels that do the work of several elementwise ones, and leaves matrix products and
convolutions to the libraries, of which it may ask for others: those of GPT-2 took half as long. Its
own checks of each call take the host as long as the launches that it saves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.prediction.host_transfer import on_host
from advisor.prediction.stretched_profile import at_pace
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.profile import Profile

FUSIBLE = frozenset(
    ("copy", "elementwise", "embedding", "layout", "memset", "norm", "other", "pooling", "reduce",
     "sort")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Effect:
    """What an execution makes of an eager job.

    Attributes:
        host: Its host path, over that of the eager job.
        fusible: Its GPU seconds in kernels of the classes `FUSIBLE`, over those of the eager job.
        others: The same of all other kernels and copies.
    """

    host: float
    fusible: float
    others: float


@dataclass(frozen=True, slots=True)
class Effects:
    """The best, the usual and the worst effect of an execution."""

    best: Effect
    usual: Effect
    worst: Effect

    def __iter__(self) -> Iterator[Effect]:
        return iter((self.best, self.usual, self.worst))


# Least, median and most of the pairs of profiles that are shipped of an H200 and an H100:
# `research.execution_score` derives them, and says how far they are off for a job left out.
CAPTURED = Effects(
    Effect(0.01, 0.99, 0.99), Effect(0.01, 1.09, 1.09), Effect(0.02, 1.18, 1.18)
)  # fmt: skip
COMPILED = Effects(
    Effect(0.78, 0.44, 0.54), Effect(1.09, 0.59, 0.82), Effect(1.27, 0.75, 0.97)
)  # fmt: skip


def executed(profile: Profile, effect: Effect) -> Profile:
    """`profile`, of an eager job, as `effect` makes it; its GPU part must have been measured.

    Where there is no trace, all of the GPU part is taken to be of the other kernels.
    """
    job = on_host(profile, effect.host)
    gpu_s, host_s = job.gpu_s or 0.0, job.host_s or 0.0
    after_s = gpu_s * _share_left(job.trace, effect)
    if host_s >= gpu_s:
        step_s = max(job.step_s, after_s)
    else:
        step_s = max(job.step_s + after_s - gpu_s, host_s)
    trace = job.trace and replace(job.trace, duration_us=tuple(_durations_us(job.trace, effect)))
    return replace(at_pace(job, step_s / job.step_s), gpu_s=after_s, trace=trace)


def _durations_us(trace: KernelTrace, effect: Effect) -> list[float]:
    factors = [effect.fusible if name in FUSIBLE else effect.others for name in trace.classes]
    return [us * factors[at] for us, at in zip(trace.duration_us, trace.class_of, strict=True)]


def _share_left(trace: KernelTrace | None, effect: Effect) -> float:
    """GPU seconds of a step after `effect` over those before."""
    if trace is None:
        return effect.others
    return sum(_durations_us(trace, effect)) / sum(trace.duration_us)
