"""The search over sets of jobs: no other plan is better, and a caller can watch and end it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.plan import watched
from advisor.plan.job_sets import WHOLE_GPU, Option, Sets
from advisor.plan.objectives import OBJECTIVES, Terms, Ways
from advisor.plan.rules import Conditions
from advisor.plan.tables import Batch, Beside, Goal, InTurn, Nothing, Stage, Table
from advisor.sharing import Naive
from advisor.workload.job import Job
from advisor.workload.minimal_profile import MinimalProfile
from tests import synthetic
from tests.plan.stand_in import H200, StandIn, ranked

JOBS = [Job(synthetic.profile(f"resnet26-cifar10-bs{2**n}")) for n in range(6)]


class Drawn(Table):
    """A place on which each set has drawn outcomes, or none."""

    def __init__(self, goal, draw):
        self.goal = goal
        sets, empty = len(goal.sets.counts), np.arange(len(goal.sets.counts)) == 0
        never = np.where(draw.random(sets) < 0.2, np.inf, 0.0)
        own = [np.where(empty, 0.0, draw.random(sets) + never)[None] for _ in range(3)]
        last_s = np.where(goal.sets.counts > 0, own[0][0][:, None], 0.0)
        self.ways = Ways(
            *own, last_s[None] if goal.objective.uses_deadlines else last_s[None, :, :0]
        )

    def candidates(self, chosen):
        return Ways(*(each[:, chosen] for each in self.ways)), [(0,)]

    def way(self, chosen, _key):
        return ((0, Stage((Batch(Option(WHOLE_GPU, Naive()), chosen),))),)


def goal_of(objective, seed):
    draw, jobs = np.random.default_rng(seed), JOBS[: 2 + seed % 3]
    sets = Sets([*jobs, jobs[0]])  # two of the first
    return Goal(sets, OBJECTIVES[objective], Terms(draw.random(len(jobs)) + 0.5, (0.7,))), draw


def divisions(sets, whole, places):
    """Every way to divide the set `whole` among so many places."""
    if places == 1:
        yield (whole,)
        return
    for own in sets.inside(whole).tolist():
        yield from ((own, *rest) for rest in divisions(sets, whole - own, places - 1))


def at(ways, chosen):
    return Ways(*(each[0, chosen] for each in ways))


def cost(goal, ways):
    return float(goal.costs(Ways(*(np.asarray(each)[None] for each in ways)))[0][0])


@given(st.sampled_from(sorted(OBJECTIVES)), st.integers(0, 99), st.integers(1, 3))
def test_no_division_among_places_is_better_than_the_best_of_their_table(objective, seed, places):
    goal, draw = goal_of(objective, seed)
    tables = [Drawn(goal, draw) for _ in range(places)]
    table = Nothing(goal)
    for each in reversed(tables):
        table = Beside(each, table)
    for whole in range(len(goal.sets.counts)):
        least = np.inf
        for division in divisions(goal.sets, whole, places):
            own = [at(each.ways, part) for each, part in zip(tables, division, strict=True)]
            extra, jobs = np.zeros(1), np.zeros(1, dtype=int)
            for each, part in zip(own, division, strict=True):
                more = goal.sets.sizes[[part]]
                extra = goal.objective.extra_beside(extra, each.extra[None], jobs, more)
                jobs = jobs + more
            together = Ways(
                max(each.span_s for each in own),
                sum(each.ends_s for each in own),
                extra[0],
                np.max([each.last_s for each in own], axis=0),
            )
            least = min(least, cost(goal, together))
        assert table.least(whole) == pytest.approx(least)
        if np.isfinite(least):
            chosen = [stage.batches[0].chosen for _, stage in table.best(whole)]
            assert sum(chosen) == whole


@given(st.sampled_from(["makespan", "mean-completion", "energy", "throughput"]), st.integers(0, 99))
def test_no_order_of_batches_is_better_than_the_best_of_the_table_of_turns(objective, seed):
    goal, draw = goal_of(objective, seed)
    batch = Drawn(goal, draw)
    table = InTurn(batch)

    def orders(whole):
        if not whole:
            yield ()
        for own in goal.sets.inside(whole).tolist()[1:] if whole else ():
            yield from ((own, *rest) for rest in orders(whole - own))

    for whole in range(1, len(goal.sets.counts)):
        least = np.inf
        for order in orders(whole):
            own = [at(batch.ways, part) for part in order]
            start_s, ends_s = 0.0, 0.0
            for each, part in zip(own, order, strict=True):
                ends_s += each.ends_s + start_s * goal.sets.sizes[part]
                start_s += each.span_s
            whole_way = Ways(start_s, ends_s, sum(each.extra for each in own), own[0].last_s)
            least = min(least, cost(goal, whole_way))
        assert table.least(whole) == pytest.approx(least)
        if np.isfinite(least):
            assert sum(stage.batches[0].chosen for _, stage in table.best(whole)) == whole


class Left(Exception):
    """A visitor has left."""


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: ranked(jobs, H200, StandIn(), "makespan"),
        lambda jobs: Advisor("h200-141gb").recommend(jobs, gpus=2),
        lambda jobs: Advisor("h200-141gb").recommend_copies(jobs[0]),
    ],
)
def test_who_watches_a_search_sees_it_go_on_and_can_end_it(ask):
    seen = []
    with watched(lambda: seen.append(1)):
        ask(JOBS[:4])
    assert len(seen) > 3

    def leave():
        seen.pop()
        if not seen:
            raise Left

    del seen[3:]
    with watched(leave), pytest.raises(Left):
        ask(JOBS[:4])
    ask(JOBS[:1])  # no caller watches it


def test_the_library_plans_nine_jobs_as_it_plans_many():
    advisor, nine = Advisor("h200-141gb"), [*JOBS, *JOBS[:3]]
    advised = advisor.recommend(nine)
    assert advised == advisor.recommend(nine)
    assert [plan.best.way is None for plan in (advised, advisor.recommend(nine[:8]))] == [0, 1]


def test_power_caps_leave_out_ways_of_which_the_energy_is_not_known():
    """Two of three jobs fit at once, and the idle power between groups is not known."""
    bare = [
        MinimalProfile(
            schema=1,
            workload=f"job-{n}",
            gpu="h200-141gb",
            batch_size=8,
            step_s=0.1 * n,
            memory_mib=60_000,
            power_w=300,
            gpu_utilization=0.4,
            memory_utilization=None,
            examples_per_epoch=50_000,
        ).whole()
        for n in range(1, 4)
    ]
    may_cap = Conditions(power_caps=True)
    advised = Advisor("h200-141gb").recommend(bare, "energy", conditions=may_cap)
    assert advised.ranked_by == "energy"
    assert all(plan.energy_j is not None for plan in advised.plans)
