"""Which plans are shown, and in which order: by rules that are written down."""

from dataclasses import replace
from itertools import pairwise, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.launch.shell import with_commands
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import (
    HANDICAPS,
    OBJECTIVES,
    SPARING,
    first_plan,
    handicap,
    known_cost,
    starved,
    weighed,
)
from advisor.plan.one_gpu import best_turns
from advisor.plan.ranking import MOST_OF_A_KIND, by_precedence
from advisor.plan.reasons import compare
from advisor.plan.rules import Conditions
from advisor.plan.values import Question
from advisor.prediction.prediction import Interval
from advisor.report.headline import plan_words
from advisor.report.recommendation import answer
from advisor.sharing import Group, Hybrid, Mig, Mps, Naive, Serial, parse_sharing
from advisor.sharing.groups import in_turn
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn, ranked

HOST_BOUND = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


def advice(jobs, objective="makespan", predictor=None, model=H200):
    return with_commands(ranked(jobs, model, predictor or StandIn(model), objective))


def test_jobs_that_wait_for_their_hosts_are_told_to_share():
    advised = advice([HOST_BOUND] * 3)
    assert not isinstance(advised.best.sharing, Serial)
    assert advised.best.speedup_vs_serial == pytest.approx(3)
    assert "CPU-bound" in advised.best.why


def test_plans_are_ranked_from_one_without_gaps_and_serial_is_among_them():
    advised = advice([HOST_BOUND, GPU_BOUND])
    assert [plan.rank for plan in advised.plans] == list(range(1, len(advised.plans) + 1))
    makespans = [plan.makespan_s for plan in advised.plans[1:]]
    assert makespans == sorted(makespans)
    first, second = advised.plans[:2]
    assert weighed(first.makespan_s, first.sharing) <= weighed(second.makespan_s, second.sharing)
    assert advised.serial in advised.plans


def test_every_kind_is_considered_and_only_the_best_few_of_many_are_kept():
    advised = with_commands(
        ranked([HOST_BOUND, GPU_BOUND], H200, StandIn(), "makespan", Conditions(mig="any"))
    )
    kinds = [type(plan.sharing) for plan in advised.plans]
    assert {Serial, Naive, Mps, Mig, Hybrid} == set(kinds)
    assert kinds.count(Mig) <= MOST_OF_A_KIND
    modes = [plan.sharing.mode for plan in advised.plans]
    assert modes.count("mps") == 1
    assert modes.count("mps-limits") <= MOST_OF_A_KIND
    assert advised.considered > len(advised.plans)


@pytest.mark.parametrize("objective", ["deadlines", "mean-completion", "makespan"])
def test_no_order_of_jobs_one_after_another_beats_the_one_that_gains_are_over(objective):
    jobs = [
        replace(each, epochs=epochs, deadline_s=due_s)
        for each, epochs, due_s in (
            (GPU_BOUND, 3, 9e5),
            (HOST_BOUND, 1, None),
            (HOST_BOUND, 2, 3e4),
            (GPU_BOUND, 1, 4e5),
        )
    ]
    mixes = Mixes(jobs, StandIn(H200))
    orders = (in_turn([Group((n,), Serial()) for n in each]) for each in permutations((1, 2, 3, 4)))
    costs = [known_cost(forecast(mixes, each), objective).p50 for each in orders]
    found = known_cost(forecast(mixes, best_turns(jobs, objective)), objective).p50
    assert found == pytest.approx(min(costs))
    if objective != "makespan":
        assert found < 0.9 * max(costs)


def test_joules_are_not_saved_at_the_price_of_a_deadline_that_can_be_kept():
    class Hungry(StandIn):
        """Whatever shares the GPU makes it draw ten times as much."""

        def predict(self, profiles, sharing):
            mix = super().predict(profiles, sharing)
            return mix if len(profiles) == 1 else replace(mix, power_w=mix.power_w.scaled(10))

    jobs = [replace(HOST_BOUND, epochs=3)] * 2
    alone_s = jobs[0].work_steps * HOST_BOUND.profile.step_s
    assert isinstance(advice(jobs, "energy", Hungry()).best.sharing, Serial)
    due = [replace(job, deadline_s=1.5 * alone_s) for job in jobs]
    advised = advice(due, "energy", Hungry())
    missed = [len(plan.late_jobs) for plan in advised.plans]
    assert missed == sorted(missed)
    assert advised.best.late_jobs == ()
    assert advised.serial.late_jobs == (2,)


def test_a_single_job_has_nothing_to_share():
    advised = advice([HOST_BOUND])
    assert advised.searched is None
    assert [str(plan.sharing) for plan in advised.plans] == ["serial"]
    assert "no other plan is possible" in advised.best.why


def test_a_mix_that_does_not_fit_is_left_out_with_what_it_takes():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
    advised = advice([big, big])
    assert [str(plan.sharing) for plan in advised.plans] == ["serial"]
    reasons = {each.sharing: each.why for each in advised.left_out}
    assert reasons["mps"] == "does not fit: the jobs take 200,000 MiB of 143,771 MiB"
    assert "enough memory" in reasons["mig"]


def test_a_job_that_fits_nowhere_says_how_much_is_missing_and_which_job():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=200_000))
    with pytest.raises(NothingFits, match=r"dlrm-29gb-bs128 .* 220,000 MiB .* 76,229 MiB too many"):
        advice([HOST_BOUND, big])


def test_without_epoch_lengths_the_ranking_falls_back_and_says_so():
    lost = replace(GPU_BOUND.profile.workload, examples_per_epoch=None)
    advised = advice([Job(replace(GPU_BOUND.profile, workload=lost)), HOST_BOUND])
    assert (advised.objective, advised.ranked_by) == ("makespan", "throughput")
    assert "every job's length" in advised.note
    fair = [plan for plan in advised.plans if not starved(plan, "p50")]
    speeds = [plan.prediction.weighted_speedup for plan in fair]
    assert speeds == sorted(speeds, reverse=True)
    assert all(plan.makespan_s is None for plan in advised.plans)


class MigLooksGood(StandIn):
    """Mates on MIG instances are estimated to be so much faster than any that was measured."""

    def __init__(self, faster):
        super().__init__(wide=0.1)
        self.faster = faster

    def _steps(self, profiles, sharing):
        if isinstance(sharing, Mig):
            return [self.faster * each for each in super()._steps(profiles, Mps())]
        return super()._steps(profiles, sharing)


def test_an_unconfirmed_plan_does_not_go_before_a_confirmed_one_that_costs_about_as_much():
    advised = advice([GPU_BOUND] * 2, predictor=MigLooksGood(0.99))
    assert advised.best.prediction.confirmed_on_hardware
    estimated = next(p for p in advised.plans if not p.prediction.confirmed_on_hardware)
    assert "less total time than plan 1, a tie" in estimated.why
    assert advised.plans[estimated.rank - 2].precedes_by == "simplicity"
    assert f"{plan_words(advised, estimated)}, is " in answer(advised)


BERT = Job(synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.05))
RESNET = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
FROM_SIMPLE = (
    "serial",
    "naive",
    "mps",
    "mps=43,57",
    "naive[1];mps[2]",
    "mig=3g.71gb,3g.71gb",
    "mig=7g.141gb@0/ci=3c[1]+4c[2]",
)
SHARINGS = [forecast(Mixes([BERT, RESNET], StandIn()), parse_sharing(text)) for text in FROM_SIMPLE]
LEVELS = ("p50", "p95")


def asked(level="p50", objective="makespan"):
    return Question(gpu=H200, predictor=StandIn(), objective=objective, level=level)


def plan(sharing, price, *, slowed=1.0):
    """The forecast of `sharing`, as if it cost `price` and slowed one job so many times."""
    found = SHARINGS[FROM_SIMPLE.index(sharing)]
    first, *others = found.prediction.jobs
    jobs = (replace(first, slowdown=slowed), *others)
    mix = replace(found.prediction, jobs=jobs)
    return replace(found, prediction=mix, makespan_interval_s=price)


prices = st.builds(
    lambda median, below, above: Interval(median * (1 - below), median, median * (1 + above)),
    st.sampled_from([1.0, 1.001, 1.004, 1.02, 1.1, 1.3]) | st.floats(0.5, 2.0),
    st.floats(0.0, 0.5),
    st.floats(0.0, 0.5),
)
plans = st.builds(
    lambda sharing, price, slowed: plan(sharing, price, slowed=slowed),
    st.sampled_from(FROM_SIMPLE),
    prices,
    st.sampled_from([1.0, 5.0, 20.0]),
)


def spares(each, level):
    return not starved(each, level)


def level_cost(each, level):
    return each.makespan_interval_s.at(level)


@given(st.lists(plans, min_size=1, max_size=7), st.sampled_from(LEVELS))
def test_what_costs_less_than_the_first_is_harder_to_set_up_and_not_far_ahead(drawn, level):
    first, *others = (each for each, _ in by_precedence(drawn, asked(level)))
    assert len(others) == len(drawn) - 1
    for each in others:
        lead = level_cost(first, level) / level_cost(each, level)
        if lead > 1 and (spares(each, level) or not spares(first, level)):
            assert lead <= (1 + handicap(each.sharing)) / (1 + handicap(first.sharing)) + 1e-9


@given(st.lists(plans, min_size=1, max_size=7), st.floats(1.0, 5.0))
def test_ignorance_does_not_choose(drawn, wider):
    """Wider ranges around the same medians leave the first plan where it is."""
    unsure = [
        replace(each, makespan_interval_s=each.makespan_interval_s.widened(wider)) for each in drawn
    ]
    (first, _), (again, _) = (first_plan(each, "makespan") for each in (drawn, unsure))
    assert unsure.index(again) == drawn.index(first)


@given(st.lists(plans, min_size=2, max_size=7), st.sampled_from(LEVELS))
def test_every_plan_is_told_the_rule_by_which_it_precedes_the_next(drawn, level):
    ordered, rules = zip(*by_precedence(drawn, asked(level)), strict=True)
    (first, *others), (rule, *following, last) = ordered, rules
    assert last is None
    match rule:
        case "cost":
            assert level_cost(first, level) <= level_cost(others[0], level)
        case "simplicity":
            assert handicap(first.sharing) < handicap(others[0].sharing)
        case "starvation":
            assert spares(first, level) > spares(others[0], level)
        case other:
            raise AssertionError(other)
    assert set(following) <= {"cost"}
    for each, after in pairwise(others):
        assert level_cost(each, level) <= level_cost(after, level)


@given(st.lists(plans, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_plans_were_tried_says_nothing(drawn, random):
    unlike = list({each.makespan_interval_s.p50: each for each in drawn}.values())
    mixed = random.sample(unlike, len(unlike))
    there, back = (by_precedence(those, asked()) for those in (unlike, mixed))
    assert there == back


@pytest.mark.parametrize(
    ("simpler", "other"),
    [
        ("serial", "naive"),
        ("serial", "mps"),
        ("mps", "naive"),
        ("mps", "mps=43,57"),
        ("mps", "naive[1];mps[2]"),
        ("mps", "mig=3g.71gb,3g.71gb"),
    ],
)
def test_a_way_that_is_harder_to_set_up_comes_first_if_it_is_clearly_ahead(simpler, other):
    usual = plan(simpler, Interval(0.9, 1.0, 1.1))
    for saves, first in ((0.001, simpler), (0.2, other)):
        better = plan(other, Interval(0.9, 1.0, 1.1).scaled(1 - saves))
        (best, rule), (_, last) = by_precedence([better, usual], asked())
        assert best is (usual if first == simpler else better)
        assert rule == ("simplicity" if first == simpler else "cost")
        assert last is None


@pytest.mark.parametrize(("costs", "in_time_first"), [(1.05, True), (1.2, False)])
def test_a_plan_that_is_in_time_comes_first_if_it_costs_little_more(costs, in_time_first):
    late, in_time = (
        replace(
            plan("mps", Interval(price, price, price)),
            ends_s=(Interval(end_s, end_s, end_s), Interval(1.0, 1.0, 1.0)),
            deadlines_s=(2.0, None),
        )
        for price, end_s in ((1.0, 3.0), (costs, 1.5))
    )
    (first, rule), _ = by_precedence([late, in_time], asked())
    assert (first is in_time) == in_time_first
    assert rule == ("deadlines" if in_time_first else "cost")


def test_by_upper_ends_the_first_may_have_the_greater_median():
    sure, unsure = (
        plan("naive", Interval(1.0, 1.1, 1.2)),
        plan("mps", Interval(0.9, 1.0, 1.4)),
    )
    assert by_precedence([sure, unsure], asked("p50"))[0][0] is unsure
    assert by_precedence([sure, unsure], asked("p95"))[0][0] is sure


class Drawn(StandIn):
    """What sharing comes to is drawn, by what shares how."""

    def __init__(self, seed, wide):
        super().__init__(wide=wide)
        self.seed = seed

    def _steps(self, profiles, sharing):
        plain = super()._steps(profiles, sharing)
        random = Random(f"{self.seed} {sharing} {[each.name for each in profiles]}")
        worst = random.choice([1.0, 1.5, 30.0])
        if str(sharing) == "serial" or len(profiles) == 1:
            return plain
        return [
            max(each.step_s, step * random.uniform(0.4, worst))
            for each, step in zip(profiles, plain, strict=True)
        ]


@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.01, 0.1, 0.4]),
    st.sampled_from(LEVELS),
    st.sampled_from(["makespan", "throughput", "energy", "mean-completion"]),
)
def test_rank_1_is_the_best_one_shown_whatever_is_predicted(seed, wide, level, objective):
    advised = ranked([BERT, RESNET], H200, Drawn(seed, wide), objective, level=level)
    assert by_precedence(advised.plans, asked(level, objective))[0][0] is advised.best
    if level == "p50":
        assert compare([BERT, RESNET], H200, advised.plans, objective).best.forecast is advised.best
    first, *others = (known_cost(each, objective).at(level) for each in advised.plans)
    for each in others:
        dearer = first / each
        most = (1 + SPARING) * (1 + max(HANDICAPS.values()))
        assert OBJECTIVES[objective].saves_energy or dearer <= most + 1e-9
    assert ("; first " in advised.best.why) or advised.best.precedes_by == "cost"
