"""What CUDA graphs and torch's compiler did to workloads that were measured eager too."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from advisor.prediction.execution_transfer import (
    CONVOLUTIONS,
    FUSIBLE,
    NORMS,
    Effect,
    Effects,
    casts,
    executed,
)
from advisor.prediction.host_transfer import host_path_s
from advisor.workload.profile import Profile
from research.files import BENCHMARKS, PROFILES, profiles_in

GPUS = ("h200-141gb", "h100-sxm-80gb")
EXECUTIONS = ("graph", "compiled")

# Models drawn when the others had been fitted.
DRAWN_LATER = "drawn-later"

# A class with a smaller share of a step says little of what becomes of it.
_MATTERS = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One workload on one GPU, eager and in another execution."""

    execution: str
    eager: Profile
    changed: Profile


def pairs_in(profiles: Mapping[str, Profile]) -> list[Pair]:
    """The workloads that were measured alone both ways."""
    return [
        Pair(execution=execution, eager=profiles[name], changed=changed)
        for execution in EXECUTIONS
        for stem, changed in profiles.items()
        if (name := stem.removesuffix(f"-{execution}")) != stem and name in profiles
    ]


def shipped_pairs() -> list[Pair]:
    """Those of the profiles that are shipped, of each GPU."""
    return [pair for key in GPUS for pair in pairs_in(profiles_in(PROFILES / key))]


def pairs_aside(folder: str) -> list[Pair]:
    """Those that were measured for this alone: ``"profiles"``, or drawn later."""
    roots = (BENCHMARKS / "executions" / folder / key for key in GPUS)
    return [pair for root in roots if root.is_dir() for pair in pairs_in(profiles_in(root))]


def all_pairs() -> list[Pair]:
    """All that were measured."""
    return [*shipped_pairs(), *pairs_aside("profiles"), *pairs_aside(DRAWN_LATER)]


def effects_of(execution: str, pairs: Iterable[Pair], left_out: str = "") -> Effects:
    """What the pairs tell of an execution, without those of the eager workload `left_out`."""
    those = [each for each in pairs if each.execution == execution and each.eager.name != left_out]
    return _of_capture(those) if execution == "graph" else _of_compiler(those)


def _of_capture(pairs: Sequence[Pair]) -> Effects:
    # A captured job's host no longer sets its pace, so what it does itself counts.
    hosts = _ends(_ratio(each.changed.host_s, each.eager.host_s) for each in pairs)
    kernels = _ends(_ratio(each.changed.step_s, each.eager.gpu_s) for each in pairs)
    ends = zip(hosts, kernels, strict=True)
    return Effects(*(Effect(host=host, cast_host=host, kernels=share) for host, share in ends))


def _of_compiler(pairs: Sequence[Pair]) -> Effects:
    hosts, cast_hosts = (
        _ends(host_path_s(each.changed) / host_path_s(each.eager)
              for each in pairs if casts(each.eager.workload) == cast)
        for cast in (False, True)
    )  # fmt: skip
    names = {each.eager.name for each in pairs}
    others = {name: fused([p for p in pairs if p.eager.name != name]) for name in names}
    kernels = _ends(
        _gpu_us(p.changed) / _gpu_us(executed(p.eager, others[p.eager.name])) for p in pairs
    )
    usual = fused(pairs)
    return Effects(
        *(replace(_no_slower(usual, share), host=host, cast_host=cast)
          for host, cast, share in zip(hosts, cast_hosts, kernels, strict=True))
    )  # fmt: skip


def _no_slower(usual: Effect, times: float) -> Effect:
    """Kernels take so many `times` as long as usual, but no longer than eager ones."""
    kernels = min(1.0, times)
    norms, fusible, convolutions = (
        min(1.0, times * share) / kernels
        for share in (usual.norms, usual.fusible, usual.convolutions)
    )
    return replace(usual, kernels=kernels, norms=norms, fusible=fusible, convolutions=convolutions)


def _ends(numbers: Iterable[float]) -> tuple[float, float, float]:
    """The least, the median and the most."""
    each = sorted(numbers)
    return each[0], median(each), each[-1]


def fused(pairs: Sequence[Pair]) -> Effect:
    """What torch's compiler makes of the classes of kernels, by least squares of shares of it.

    It merges kernels across classes, so what becomes of all that can be merged is shared out.
    """
    from scipy.optimize import nnls

    merged = NORMS | FUSIBLE
    before = [[_gpu_us(p.eager, kinds) / _gpu_us(p.changed) for kinds in (NORMS, FUSIBLE)]
              for p in pairs]  # fmt: skip
    after = [_gpu_us(p.changed, merged) / _gpu_us(p.changed) for p in pairs]
    (norms, fusible), _ = nnls(np.array(before), np.array(after))
    convolutions = median(
        _gpu_us(p.changed, CONVOLUTIONS) / _gpu_us(p.eager, CONVOLUTIONS)
        for p in pairs
        if _gpu_us(p.eager, CONVOLUTIONS) > _MATTERS * _gpu_us(p.eager)
    )
    return Effect(host=1.0, cast_host=1.0, kernels=1.0, norms=float(norms), fusible=float(fusible),
                  convolutions=convolutions)  # fmt: skip


def _ratio(after: float | None, before: float | None) -> float:
    assert after is not None
    assert before
    return after / before


def _gpu_us(profile: Profile, kinds: Collection[str] | None = None) -> float:
    """Microseconds of a step in kernels of the classes `kinds`; None: in all."""
    trace = profile.trace
    assert trace is not None, profile.name
    pairs = zip(trace.duration_us, trace.class_of, strict=True)
    return sum(us for us, at in pairs if kinds is None or trace.classes[at] in kinds)
