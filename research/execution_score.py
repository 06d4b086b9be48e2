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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median

from advisor.hardware.catalogue import gpu
from advisor.prediction.execution_transfer import Effect, Effects, executed
from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import without_phases
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import model_path
from research.execution_effects import (
    DRAWN_LATER,
    EXECUTIONS,
    GPUS,
    Pair,
    all_pairs,
    effects_of,
    pairs_aside,
    pairs_in,
)
from research.files import BENCHMARKS, PROFILES, measured, rounded


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


def foretold() -> list[ExecutionStep]:
    """The compiled jobs drawn later, by what was known when they were drawn."""
    known = json.loads((BENCHMARKS / "executions" / DRAWN_LATER / "foretold-by.json").read_text())
    effects = Effects(*(Effect(**known[end]) for end in ("best", "usual", "worst")))
    return [alone(each, effects) for each in pairs_aside(DRAWN_LATER)]


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
    document = {
        "alone": alone,
        "all": [asdict(each) for each in lines(found)],
        "foretold": [asdict(each) for each in foretold()],
    }
    print(json.dumps(rounded(document, ".4g"), indent=1))
    for execution in EXECUTIONS:
        print(execution, *effects_of(execution, all_pairs()), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
