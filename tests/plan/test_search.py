"""The search over MIG instances: its bounds hold, its work ends, and a caller can end it."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.gpus import gpu
from advisor.hardware.mig import profile_of
from advisor.plan import partitions
from advisor.plan.cluster import FleetTerms
from advisor.plan.fleet import FleetPlan
from advisor.plan.job_sets import Option, PartitionKind, Sets, options
from advisor.plan.partitions import AssignmentSearch, SetScores, cuts
from advisor.plan.progress import watched
from advisor.plan.ranking import ranked
from advisor.plan.rules import Conditions
from advisor.workload.job import Job
from advisor.workload.minimal_profile import MinimalProfile
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

CARDS = [gpu("a30-24gb"), gpu("a100-40gb"), gpu("rtx-pro-6000-96gb")]
JOBS = [Job(synthetic.profile(f"resnet26-cifar10-bs{2**n}")) for n in range(6)]


def search_of(card, memory, seed, price):
    """A search in which sets fit on instances by the sum of `memory`, shares of the GPU."""
    draw, sets = np.random.default_rng(seed), Sets(JOBS[: len(memory)])
    held = sets.counts @ np.array(memory) * card.memory_mib
    allowed = {each.name: held <= each.memory_mib for each in card.mig}
    scores: dict[PartitionKind, list[tuple[Option, SetScores]]] = {}
    for kind in {kind for cut in cuts(card) for kind in cut.partitions}:
        costs = draw.random((len(options(kind)), *sets.counts.shape))
        costs *= 8 / (kind.slices or profile_of(card, kind.profile).compute_slices)
        own = [
            SetScores((sets.counts * each).max(axis=1), (sets.counts * each).sum(axis=1))
            for each in costs
        ]
        scores[kind] = [
            (option, each.without(~allowed[kind.profile]))
            for option, each in zip(options(kind), own, strict=True)
        ]
    return AssignmentSearch(sets, cuts(card), scores, price, allowed), held


PRICES = {
    "largest": lambda most, total: (most, total),
    "sum": lambda most, total: (total, most),
    "both": lambda most, total: (most + total, most),
}
DRAWN = (
    st.sampled_from(CARDS),
    st.lists(st.sampled_from([0.03, 0.1, 0.2, 0.4, 0.8]), min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from(sorted(PRICES)),
)


@given(*DRAWN)
def test_a_search_that_begins_has_an_answer_in_which_memory_holds_every_job(
    card, memory, seed, price
):
    search, held = search_of(card, memory, seed, PRICES[price])
    for whole in range(search.sets.everything, 0, -5):
        first = next(search.in_order(whole), None)
        assert (first is not None) == np.isfinite(search.least(whole))
        if first is None:
            continue
        assert sum(choice.chosen for choice in first.placed) == whole
        on = np.zeros(len(first.cut.instances), dtype=int)
        np.add.at(on, [*first.cut.instance_at], [choice.chosen for choice in first.placed])
        for instance, jobs in zip(first.cut.instances, on, strict=True):
            assert held[jobs] <= profile_of(card, instance.profile).memory_mib


@given(*DRAWN)
def test_answers_come_by_cost_and_no_later_one_is_cheaper(card, memory, seed, price):
    search, _ = search_of(card, memory, seed, PRICES[price])
    costs = [
        PRICES[price](each.most, each.total)[0]
        for each in islice(search.in_order(search.sets.everything), 20)
    ]
    assert costs == pytest.approx(sorted(costs))
    assert not costs or search.least(search.sets.everything) <= costs[0] * (1 + 1e-9)


@given(*DRAWN, st.integers(0, 20))
def test_a_search_that_used_up_its_work_still_has_an_answer_for_all_jobs(
    card, memory, seed, price, work
):
    search, _ = search_of(card, memory, seed, PRICES[price])
    best = next(search.in_order(search.sets.everything), None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "_MOST_EXTENDED", work)
        hasty, _ = search_of(card, memory, seed, PRICES[price])
        first = next(hasty.in_order(hasty.sets.everything), None)
    assert (first is None) == (best is None)
    if first is not None:
        assert sum(choice.chosen for choice in first.placed) == hasty.sets.everything
        assert next(hasty._extensions) <= work + 200


class Left(Exception):
    """A visitor has left."""


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: ranked(jobs, H200, StandIn(), "makespan"),
        lambda jobs: Advisor("h200-141gb").recommend_fleet(jobs, FleetTerms(gpus=2)),
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
    plan = advisor.recommend(nine)
    assert isinstance(plan, FleetPlan)
    assert plan.on == advisor.recommend_fleet(nine, FleetTerms()).on
    assert advisor.recommend(nine) is plan, "it remembers its last answers"
    assert not isinstance(advisor.recommend(nine[:8]), FleetPlan)


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
    advised = Advisor("h200-141gb").rank(bare, "energy", conditions=may_cap)
    assert advised.ranked_by == "energy"
    assert all(plan.energy_j is not None for plan in advised.plans)
