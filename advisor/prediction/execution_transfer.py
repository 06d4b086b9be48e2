"""Converts the profile of an eager job to another execution: captured in a CUDA graph, or compiled.

A captured step is launched at once, so its host path all but vanishes, and its kernels stay. The
compiler writes kernels that do the work of several elementwise ones: normalisations all but vanish
in them, what else can be fused shrinks, and convolutions come in a layout that suits them. Matrix
products stay, unless their shapes suit no library: those of GPT-2, with its odd vocabulary, took
half as long. Its own checks of each call take the host as long as the launches that it saves, and
longer; but it saves the casts of autocast as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.prediction.host_transfer import on_host
from advisor.prediction.stretched_profile import at_pace
from advisor.prediction.trace import waiting_step
from advisor.workload.kernel_trace import HOST_COPY, KernelTrace
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload

NORMS = frozenset(("norm",))
FUSIBLE = frozenset(
    ("copy", "elementwise", "embedding", "layout", "memset", "other", "pooling", "reduce", "sort")
)
CONVOLUTIONS = frozenset(("conv",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an execution makes of an eager job, each over that of the eager job.

    Attributes:
        host: Its host path.
        cast_host: The same where autocast casts.
        kernels: GPU seconds of every kernel, on top of the following; copies between host and
            GPU stay as they are.
        norms: GPU seconds in kernels of the classes `NORMS`.
        fusible: The same of `FUSIBLE`.
        convolutions: The same of `CONVOLUTIONS`.
    """

    host: float
    cast_host: float
    kernels: float
    norms: float = 1.0
    fusible: float = 1.0
    convolutions: float = 1.0

    def of_kernel(self, kind: str) -> float:
        """What becomes of the GPU seconds of a kernel of the class `kind`."""
        if kind == HOST_COPY:
            return 1.0
        for kinds, factor in (
            (NORMS, self.norms), (FUSIBLE, self.fusible), (CONVOLUTIONS, self.convolutions)
        ):  # fmt: skip
            if kind in kinds:
                return self.kernels * factor
        return self.kernels

    def of_host(self, workload: Workload) -> float:
        """What becomes of the host path of `workload`."""
        return self.cast_host if casts(workload) else self.host


def casts(workload: Workload) -> bool:
    """Whether it trains under autocast, which launches kernels that cast."""
    return workload.precision in {"amp", "fp16"}


@dataclass(frozen=True, slots=True)
class Effects:
    """The best, the usual and the worst effect of an execution."""

    best: Effect
    usual: Effect
    worst: Effect

    def __iter__(self) -> Iterator[Effect]:
        return iter((self.best, self.usual, self.worst))


# Of the pairs of profiles that were measured on an H200 and an H100: `research.execution_effects`
# derives them, and `research.execution_score` says how far they are off for a workload left out.
# Best and worst are the least and the most of the pairs, for kernels over what the others teach;
# the compiler makes none slower.
CAPTURED = Effects(
    Effect(host=0.01, cast_host=0.01, kernels=0.99),
    Effect(host=0.01, cast_host=0.01, kernels=1.09),
    Effect(host=0.02, cast_host=0.02, kernels=1.18),
)
_FUSED = Effect(
    host=1.06, cast_host=0.94, kernels=0.97, norms=0.19, fusible=0.60, convolutions=0.81
)
COMPILED = Effects(
    replace(_FUSED, host=0.46, cast_host=0.65, kernels=0.67),
    _FUSED,
    Effect(host=1.55, cast_host=1.24, kernels=1.0, norms=0.27, fusible=0.84, convolutions=1.0),
)


def executed(profile: Profile, effect: Effect) -> Profile:
    """`profile`, of an eager job, as `effect` makes it; its GPU part must have been measured.

    Where there is no trace, its kernels count as products.
    """
    job = on_host(profile, effect.of_host(profile.workload))
    gpu_s, host_s = job.gpu_s or 0.0, job.host_s or 0.0
    after_s = gpu_s * _share_left(job.trace, effect)
    if gpu_s and (waiting := waiting_step(job)) is not None:
        step_s = waiting.changed(gpu=after_s / gpu_s).seconds()
    elif host_s >= gpu_s:
        step_s = max(job.step_s, after_s)
    else:
        step_s = max(job.step_s + after_s - gpu_s, host_s)
    trace = job.trace and replace(job.trace, duration_us=tuple(_durations_us(job.trace, effect)))
    return replace(at_pace(job, step_s / job.step_s), gpu_s=after_s, trace=trace)


def _durations_us(trace: KernelTrace, effect: Effect) -> list[float]:
    factors = [effect.of_kernel(kind) for kind in trace.classes]
    return [us * factors[at] for us, at in zip(trace.duration_us, trace.class_of, strict=True)]


def _share_left(trace: KernelTrace | None, effect: Effect) -> float:
    """GPU seconds of a step after `effect` over those before."""
    if trace is None:
        return effect.kernels
    return sum(_durations_us(trace, effect)) / sum(trace.duration_us)
