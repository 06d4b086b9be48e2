"""The one rule by which a plan comes first: least cost, with a handicap for how it shares.

Ranges play no part in it, so that a poor description of a job does not choose the simplest way.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.values import Outcome, Precedence
from advisor.prediction.prediction import Level
from advisor.sharing import Mode, Sharing
from advisor.sharing.groups import kind_of

AnyOutcome = TypeVar("AnyOutcome", bound=Outcome)
HANDICAPS: Mapping[Mode, float] = {
    "serial": 0.0,
    "mps": 0.02,
    "queue": 0.03,
    "naive": 0.06,
    "mps-limits": 0.04,
    "phases": 0.08,
    "mig": 0.10,
    "hybrid": 0.15,
}
"""Share by which a way to share must lead one after another, for what it takes to set up.

Time-slicing takes little, but disappoints: of 66 job sets that ran in both ways on an H200, MPS was
over 3 % behind it in 4. When the shares were chosen, the first plan gave away 1.7 % of the best
measured throughput of 58 job sets, 1.5 % of 25 drawn ones, 0.9 % of 12 on an H100; from
nvidia-smi's numbers 3.5, 1.3 and 2.0 %. Without handicaps it was 1.8, 1.5 and 0.5 %; 2.9, 2.6 and
0.7 %. If leads had to exceed a part of their ranges, 2.0, 1.2 and 0.9 %; 3.9, 2.0 and 3.9 %. No job
set ran on MIG, in a queue or in phases: their shares are choices."""

# Of a power cap on top: a choice.
_CAP = 0.02
# Of limits that differ: the best of hundreds of vectors is often one whose error is lucky. With it,
# plans from nvidia-smi's numbers lose 4.1 % by the full profiles of 28 drawn sets, without 4.9 %;
# from counters without a trace 5.9 %, without 9.2 %.
_DIFFERENT = 0.03

STARVED = 10.0
"""A job that is slowed more than this many times starves: a choice."""

SPARING = 0.1
"""Share that it may cost that no job starves, or that fewer jobs are late: a choice."""


def handicap(sharing: Sharing) -> float:
    """Return the share of `HANDICAPS`, more if limits differ; phases with MIG count as hybrid."""
    mixed = sharing.mode == "phases" and sharing.instances
    share = HANDICAPS["hybrid" if mixed else kind_of(sharing)]
    return share + _DIFFERENT * (len(set(sharing.limits)) > 1)


def weighed(cost: float, sharing: Sharing) -> float:
    """Return `cost` with the handicap of `sharing`: the plan of the least comes first."""
    return cost * (1 + handicap(sharing))


def first_plan(
    plans: Sequence[AnyOutcome], objective: ObjectiveName, level: Level = "p50"
) -> tuple[AnyOutcome, Precedence]:
    """Return the plan of `plans` to recommend, and the last rule that chose it.

    Fewest late jobs count first where the cost is in joules; then that no job starves, and where
    the cost is in something else that fewest are late.
    """
    by, decides = OBJECTIVES[objective], objective
    rule: Precedence = "deadlines"

    def price(each: AnyOutcome) -> float:
        return known_cost(each, decides).at(level)

    def weight(each: AnyOutcome) -> float:
        most = max(weighed(price(each), mix.sharing) for mix in each.mixes)
        capped = any(mix.power_cap_w is not None for mix in each.mixes)
        return most * (1 + _CAP * capped)

    def simplicity(each: AnyOutcome) -> int:
        return max(list(HANDICAPS).index(kind_of(mix.sharing)) for mix in each.mixes)

    pool = fewest_late(plans, level) if by.saves_energy else [*plans]
    most = (1 + SPARING) * min(map(price, pool))
    spared = [each for each in pool if not starved(each, level)]
    if len(spared) < len(pool) and any(price(each) <= most for each in spared):
        pool, rule = spared, "starvation"
    affordable = [each for each in pool if price(each) <= most]
    punctual = fewest_late(affordable, level)
    if by.then is not None:
        pool, decides, rule = punctual, by.then, "makespan"
    elif len(punctual) < len(affordable):
        pool, rule = punctual, "deadlines"
    best = min(pool, key=lambda each: (weight(each), simplicity(each)))
    return best, rule if price(best) <= min(map(price, pool)) else "simplicity"


def fewest_late(plans: Sequence[AnyOutcome], level: Level) -> list[AnyOutcome]:
    """Return those of `plans` in which fewest jobs miss their deadlines."""
    fewest = min(len(each.late(level)) for each in plans)
    return [each for each in plans if len(each.late(level)) == fewest]


def starved(outcome: Outcome, level: Level) -> dict[int, float]:
    """Return the positions and slowdowns of the jobs that are slowed more than `STARVED` times."""
    slowdowns = enumerate(job.slowdown_at(level) for job in outcome.predictions)
    return {at: times for at, times in slowdowns if times > STARVED}
