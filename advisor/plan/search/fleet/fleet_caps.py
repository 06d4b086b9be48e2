"""The power cap of each of several GPUs, where the user leaves the choice to the plan."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.plan.plan_space import Setup
from advisor.plan.power_caps import cap_choices
from advisor.plan.recommendation import Forecast
from advisor.plan.search.candidate_space import Question
from advisor.plan.search.outcomes import Judge, as_asked
from advisor.prediction.mix_prediction import Level
from advisor.workload.job import Job

if TYPE_CHECKING:
    from advisor.plan.many_jobs import Spread


def with_caps(found: "Spread", question: Question) -> "Spread":
    """`found` under the caps that save most joules of all GPUs, chosen for one after another.

    A job that keeps its deadline without caps keeps it under them.

    Args:
        found: Without caps.
        question: That it answers; its predictor knows of no cap.
    """
    late = set(found.late)
    for at, each in enumerate(found.on):
        tried = [found]
        for cap_w in cap_choices(found.gpu):
            setup = replace(each.setup, power_cap_w=cap_w)
            capped = replace(each, setup=setup, forecast=_foreseen(setup, found.jobs, question))
            tried.append(replace(found, on=(*found.on[:at], capped, *found.on[at + 1 :])))
        in_time = [each for each in tried if set(each.late) <= late]
        found = min(in_time, key=lambda each: _energy_j(each, question.level))
    return found


def _energy_j(found: "Spread", level: Level) -> float:
    joules = found.energy_j
    assert joules is not None, "a cap changes how much energy is used, not whether it is known"
    return joules.at(level)


def _foreseen(setup: Setup, jobs: Sequence[Job], question: Question) -> Forecast:
    own = setup.chosen(jobs)
    capped = replace(as_asked(len(own), setup.sharing), power_cap_w=setup.power_cap_w)
    found = Judge(own, question).foreseen(capped)
    assert isinstance(found, Forecast), "a cap takes no memory"
    return found
