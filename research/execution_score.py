"""How far it is off what CUDA graphs and torch's compiler are foretold to bring to eager jobs.

    python -m research.execution_score > benchmarks/executions/score.json

Some workloads were measured in two executions, alone, and some of them in runs beside others.
**Alone**: a step of the changed job, from the profile of the eager one. **Together**: the same in
each run that shared a GPU, beside the answer from the changed job's own profile; the model that
answers has seen these runs. What an execution does to a host path and to kernels is taken from the
other workloads.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean, median

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.plan.recommendation import Predicts
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
from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import without_phases
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import model_path
from research.files import BENCHMARKS, PROFILES, measured, profiles_in, rounded

GPUS = ("h200-141gb", "h100-sxm-80gb")
EXECUTIONS = ("graph", "compiled")

# Pairs of which nothing is fitted but this.
ASIDE = BENCHMARKS / "executions" / "profiles"

# A class with a smaller share of a step says little of what becomes of it.
_MATTERS = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One workload on one GPU, eager and in another execution."""

    execution: str
    eager: Profile
    changed: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStep:
    """A step of a changed job, seconds.

    Attributes:
        where: ``"alone"``, or how the GPU was shared.
        eager_s: A step of the eager job there: measured alone, predicted in a mix.
        predicted_s: From the eager job's profile; ``low_s`` to ``high_s`` is the range.
        own_s: Predicted from the changed job's own profile; None alone, where that is measured.
    """

    execution: str
    where: str
    gpu: str
    workload: str
    run: str | None
    eager_s: float
    predicted_s: float
    low_s: float
    high_s: float
    own_s: float | None
    measured_s: float

    @property
    def inside(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Steps of changed jobs in one way of sharing; errors and shares 0..1.

    Attributes:
        own: Mean error from the changed jobs' own profiles; None alone.
        gain: Step of the eager job over that of the changed one, predicted, in the median.
        measured_gain: The same with the changed job's step as measured.
    """

    execution: str
    where: str
    steps: int
    mape: float
    median: float
    inside: float
    own: float | None
    gain: float
    measured_gain: float


def pairs_in(profiles: Mapping[str, Profile]) -> list[Pair]:
    """The workloads that were measured alone both ways."""
    return [
        Pair(execution=execution, eager=profiles[name], changed=changed)
        for execution in EXECUTIONS
        for stem, changed in profiles.items()
        if (name := stem.removesuffix(f"-{execution}")) != stem and name in profiles
    ]


def all_pairs() -> list[Pair]:
    """The pairs of every GPU: those of the profiles that are shipped, and those measured aside."""
    folders = [root / key for root in (PROFILES, ASIDE) for key in GPUS]
    return [each for folder in folders for each in pairs_in(profiles_in(folder))]


def effects_of(execution: str, pairs: Iterable[Pair], left_out: str = "") -> Effects:
    """What the pairs tell of an execution, without those of the eager workload `left_out`."""
    those = [each for each in pairs if each.execution == execution and each.eager.name != left_out]
    if execution == "graph":
        # A captured job's host no longer sets its pace, so what it does itself counts.
        hosts = cast_hosts = [_ratio(each.changed.host_s, each.eager.host_s) for each in those]
        usual = Effect(host=1.0, cast_host=1.0, kernels=1.0)
        kernels = [_ratio(each.changed.step_s, each.eager.gpu_s) for each in those]
    else:
        hosts, cast_hosts = (
            [host_path_s(each.changed) / host_path_s(each.eager)
             for each in those if casts(each.eager.workload) == cast]
            for cast in (False, True)
        )  # fmt: skip
        usual = fused(those)
        kernels = [_gpu_us(p.changed) / _gpu_us(executed(p.eager, usual)) for p in those]
    ends = zip(_ends(hosts), _ends(cast_hosts), _ends(kernels), strict=True)
    return Effects(
        *(replace(usual, host=host, cast_host=cast, kernels=share) for host, cast, share in ends)
    )


def _ends(numbers: Iterable[float]) -> tuple[float, float, float]:
    """The least, the median and the most."""
    each = sorted(numbers)
    return each[0], median(each), each[-1]


def fused(pairs: Sequence[Pair]) -> Effect:
    """What torch's compiler makes of the classes of kernels, by least squares of shares of a step.

    It merges kernels across classes, so what becomes of all that can be merged is shared out.
    """
    from scipy.optimize import nnls

    merged = NORMS | FUSIBLE
    before = [[_gpu_us(p.eager, kinds) / _gpu_us(p.eager) for kinds in (NORMS, FUSIBLE)]
              for p in pairs]  # fmt: skip
    after = [_gpu_us(p.changed, merged) / _gpu_us(p.eager) for p in pairs]
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


def alone(pair: Pair, effects: Effects) -> ExecutionStep:
    """The changed job alone."""
    best, usual, worst = (executed(pair.eager, each).step_s for each in effects)
    return ExecutionStep(
        execution=pair.execution, where="alone", gpu=pair.eager.gpu, workload=pair.eager.name,
        run=None, eager_s=pair.eager.step_s, predicted_s=usual, low_s=min(best, usual),
        high_s=max(worst, usual), own_s=None, measured_s=pair.changed.step_s,
    )  # fmt: skip


def together(
    pair: Pair, effects: Effects, runs: Iterable[Run], profiles: Mapping[str, Profile],
    predictor: Predicts,
) -> Iterator[ExecutionStep]:  # fmt: skip
    """The changed job in each run in which it shared the GPU; of its copies the median."""
    best, usual, worst = (executed(pair.eager, each) for each in effects)
    forms = {"own": pair.changed, "eager": pair.eager, "best": best, "usual": usual, "worst": worst}
    for run in runs:
        names = [tenant.workload.name for tenant in run.tenants]
        sharing = without_phases(parse_sharing(run.sharing))
        if pair.changed.name not in names or len(names) < 2 or sharing is None:
            continue
        if any(tenant.outcome != "ok" for tenant in run.tenants):
            continue
        at = names.index(pair.changed.name)
        steps = {
            form: predictor.predict(
                [job if name == pair.changed.name else profiles[name] for name in names], sharing
            ).jobs[at].step_s
            for form, job in forms.items()
        }  # fmt: skip
        after = steps["usual"]
        ends = (steps[form].p50 / after.p50 for form in ("best", "worst"))
        low, high = sorted((*ends, 1.0))[::2]
        spread = after.times(Interval(low, 1.0, high))  # as advice widens a gain
        copies = [each.step_s for each in run.tenants if each.workload.name == pair.changed.name]
        yield ExecutionStep(
            execution=pair.execution, where=sharing.mode, gpu=run.gpu, workload=pair.eager.name,
            run=run.id, eager_s=steps["eager"].p50, predicted_s=after.p50,
            low_s=spread.p05, high_s=spread.p95, own_s=steps["own"].p50,
            measured_s=median(copies),
        )  # fmt: skip


def steps() -> list[ExecutionStep]:
    """Everything that was measured, by the shipped model."""
    every = all_pairs()
    left_out = {pair: effects_of(pair.execution, every, pair.eager.name) for pair in every}
    found = [alone(pair, effects) for pair, effects in left_out.items()]
    for key in GPUS:
        profiles, runs = measured(PROFILES / key)
        predictor = Predictor(gpu(key), load_model(model_path(None)))
        for pair in pairs_in(profiles):
            found += together(pair, left_out[pair], runs, profiles, predictor)
    return found


def lines(found: Sequence[ExecutionStep]) -> Iterator[Score]:
    """One line for each execution and way of sharing."""
    keys = dict.fromkeys((each.execution, each.where) for each in found)
    for execution, where in sorted(keys, key=lambda key: EXECUTIONS.index(key[0])):
        those = [each for each in found if (each.execution, each.where) == (execution, where)]
        own = [abs(each.own_s / each.measured_s - 1) for each in those if each.own_s is not None]
        errors = [abs(each.predicted_s / each.measured_s - 1) for each in those]
        yield Score(
            execution=execution, where=where, steps=len(those), mape=mean(errors),
            median=median(errors), inside=mean(each.inside for each in those),
            own=mean(own) if own else None,
            gain=median(each.eager_s / each.predicted_s for each in those),
            measured_gain=median(each.eager_s / each.measured_s for each in those),
        )  # fmt: skip


def main() -> None:
    found = steps()
    alone = [asdict(each) for each in found if each.where == "alone"]
    document = {"alone": alone, "all": [asdict(each) for each in lines(found)]}
    print(json.dumps(rounded(document, ".4g"), indent=1))
    for execution in EXECUTIONS:
        print(execution, *effects_of(execution, all_pairs()), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
