"""The best ways to give each job a MIG instance of its own."""

from collections.abc import Sequence
from math import inf

from advisor.gpu.catalogue import Gpu
from advisor.gpu.layouts import layouts
from advisor.planning.assignment import cheapest, least_worst
from advisor.planning.limits import MAX_OOM_PROBABILITY
from advisor.planning.mixes import Mixes
from advisor.planning.plan import Objective
from advisor.sharing import Instance, Mig

_Costs = dict[str, list[float]]


def best_layouts(mixes: Mixes, gpu: Gpu, objective: Objective, most: int) -> list[Mig]:
    """Up to `most` layouts that hold all jobs, best first, each with its best assignment.

    Jobs on instances of their own do not slow each other, so each is predicted alone on each
    kind of instance and the assignment is exact. Energy is ranked as makespan is: the GPU draws
    its idle power until the last job ends. Energy of an epoch or an example is ranked by the
    job that slows most, since jobs pay for the idle power by the time they take.
    """
    roomy = [layout for layout in layouts(gpu) if len(layout) >= len(mixes.jobs)]
    costs = {
        name: [_cost(mixes, job, name, objective) for job in mixes.everyone]
        for name in sorted({each.profile for layout in roomy for each in layout})
    }
    found: dict[tuple[str, ...], tuple[tuple[float, float], Mig]] = {}
    for layout in roomy:
        mig = _assigned(layout, costs, objective)
        if mig is not None:
            names = tuple(each.profile for each in mig.instances)
            found.setdefault(names, (_total(names, costs, objective), mig))
    return [mig for _, mig in sorted(found.values(), key=lambda each: each[0])[:most]]


def _cost(mixes: Mixes, job: int, name: str, objective: Objective) -> float:
    """Of one job alone on an instance; infinite where its memory does not fit."""
    answer = mixes.on_instance(job, name)
    if answer.oom_probability > MAX_OOM_PROBABILITY:
        return inf
    match objective:
        case "throughput":
            return -answer.weighted_speedup
        case "energy-epoch" | "energy-example":
            return answer.jobs[0].slowdown
        case "fairness":
            return answer.jobs[0].slowdown
        case "makespan" | "mean-completion" | "deadlines" | "energy":
            return (mixes.jobs[job].work_steps or 0.0) * answer.jobs[0].step_s.p50


def _assigned(layout: Sequence[Instance], costs: _Costs, objective: Objective) -> Mig | None:
    names = sorted({each.profile for each in layout})
    places = {name: [each for each in layout if each.profile == name] for name in names}
    table = list(zip(*(costs[name] for name in names), strict=True))
    search = cheapest if objective == "throughput" else least_worst
    kinds = search(table, [len(places[name]) for name in names])
    return None if kinds is None else Mig(tuple(places[names[kind]].pop(0) for kind in kinds))


def _total(names: Sequence[str], costs: _Costs, objective: Objective) -> tuple[float, float]:
    each = [costs[name][job] for job, name in enumerate(names)]
    return (0.0 if objective == "throughput" else max(each), sum(each))
