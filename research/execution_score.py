"""How far it is off what CUDA graphs and torch's compiler are foretold to bring to eager jobs.

    python -m research.execution_score > benchmarks/executions/score.json

Some workloads are shipped in two executions, alone and in runs beside others. **Alone**: a step of
the changed job, from the profile of the eager one. **Together**: the same in each run that shared a
GPU, beside the answer from the changed job's own profile; the model that answers has seen these
runs. What an execution does to a host path and to kernels is taken from the other workloads.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median

from advisor.hardware.catalogue import gpu
from advisor.plan.recommendation import Predicts
from advisor.prediction.execution_transfer import FUSIBLE, Effect, Effects, executed
from advisor.prediction.host_transfer import host_path_s
from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import without_phases
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import model_path
from research.files import PROFILES, measured, rounded

GPUS = ("h200-141gb", "h100-sxm-80gb")
EXECUTIONS = ("graph", "compiled")


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


def effects_of(execution: str, pairs: Iterable[Pair], left_out: str = "") -> Effects:
    """What the pairs tell of an execution, without those of the eager workload `left_out`."""
    those = [each for each in pairs if each.execution == execution and each.eager.name != left_out]
    graph = execution == "graph"
    # A captured job's host no longer sets its pace, so what it does itself counts.
    hosts = sorted(
        _ratio(each.changed.host_s, each.eager.host_s) if graph
        else host_path_s(each.changed) / host_path_s(each.eager)
        for each in those
    )  # fmt: skip
    if graph:
        fusible = others = sorted(_ratio(each.changed.step_s, each.eager.gpu_s) for each in those)
    else:
        fusible, others = (
            sorted(_gpu_us(each.changed, part) / _gpu_us(each.eager, part) for each in those)
            for part in (True, False)
        )
    three = [(each[0], median(each), each[-1]) for each in (hosts, fusible, others)]
    return Effects(*(Effect(*each) for each in zip(*three, strict=True)))


def _ratio(after: float | None, before: float | None) -> float:
    assert after is not None
    assert before
    return after / before


def _gpu_us(profile: Profile, fusible: bool) -> float:
    """Microseconds of a step in kernels that are fusible, or in all others."""
    assert profile.trace is not None, profile.name
    names = [profile.trace.classes[at] for at in profile.trace.class_of]
    pairs = zip(profile.trace.duration_us, names, strict=True)
    return sum(us for us, name in pairs if (name in FUSIBLE) == fusible)


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
    """Everything that is shipped, by the shipped model."""
    data = {key: measured(PROFILES / key) for key in GPUS}
    pairs = {key: pairs_in(profiles) for key, (profiles, _) in data.items()}
    everywhere = [each for those in pairs.values() for each in those]
    found: list[ExecutionStep] = []
    for key, (profiles, runs) in data.items():
        predictor = Predictor(gpu(key), load_model(model_path(None)))
        for pair in pairs[key]:
            effects = effects_of(pair.execution, everywhere, pair.eager.name)
            found.append(alone(pair, effects))
            found += together(pair, effects, runs, profiles, predictor)
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
    everywhere = [each for key in GPUS for each in pairs_in(measured(PROFILES / key)[0])]
    for execution in EXECUTIONS:
        print(execution, effects_of(execution, everywhere), file=sys.stderr)


if __name__ == "__main__":
    main()
