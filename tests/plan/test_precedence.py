"""Rank 1 is the best by the rules that are written down, whatever was predicted."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import OBJECTIVES, cost, tied
from advisor.plan.precedence import (
    CLOSE,
    COMPARED,
    WORTH,
    Priced,
    by_precedence,
    simplicity,
    starved,
)
from advisor.plan.ranking import ranked
from advisor.plan.recommendation import Question
from advisor.prediction.interval import Interval
from advisor.report.answer_text import answer
from advisor.report.documents import recommendation_document
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

BERT = Job(synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.05))
RESNET = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
FROM_SIMPLE = (
    "serial", "naive", "mps", "mps=43,57", "naive[1];mps[2]",
    "mig=3g.71gb,3g.71gb", "mig=7g.141gb@0/ci=3c[1]+4c[2]",
)  # fmt: skip
SHARINGS = [forecast(Mixes([BERT, RESNET], StandIn()), parse_sharing(text)) for text in FROM_SIMPLE]
LEVELS = ("p50", "p95")
MOST = (1 + COMPARED) * (1 + WORTH) * (1 + CLOSE)


def asked(level="p50", objective="makespan"):
    return Question(gpu=H200, predictor=StandIn(), objective=objective, level=level)


def plan(sharing, price, *, slowed=1.0):
    """The forecast of `sharing`, as if it cost `price` and slowed one job so many times."""
    found = SHARINGS[FROM_SIMPLE.index(sharing)]
    first, *others = found.prediction.jobs
    jobs = (replace(first, slowdown=slowed), *others)
    return Priced(replace(found, prediction=replace(found.prediction, jobs=jobs)), price)


prices = st.builds(
    lambda median, below, above: Interval(median * (1 - below), median, median * (1 + above)),
    st.sampled_from([1.0, 1.001, 1.004, 1.02, 1.1, 1.3]) | st.floats(0.5, 2.0),
    st.floats(0.0, 0.5),
    st.floats(0.0, 0.5),
)
plans = st.builds(
    lambda sharing, price, slowed: plan(sharing, price, slowed=slowed),
    st.sampled_from(FROM_SIMPLE), prices, st.sampled_from([1.0, 5.0, 20.0]),
)  # fmt: skip


def spares(each, level):
    return not starved(each.forecast, level)


def confirmed(each):
    return each.forecast.prediction.confirmed_on_hardware


def level_cost(each, level):
    return each.price.at(level)


def excused(first, other, level):
    """Why a plan that costs less than the first one stands behind it; None where nothing says."""
    dearer = level_cost(first, level) / level_cost(other, level) - 1
    if dearer <= (1 + CLOSE) * (1 + 1e-12) - 1:
        return "close"
    alone = first.forecast.sharing.mode == "serial"
    if alone and dearer <= (1 + WORTH) * (1 + CLOSE) * (1 + 1e-12) - 1:
        return "gain"
    if dearer > MOST * (1 + 1e-12) - 1:
        return None
    if spares(first, level) and not spares(other, level):
        return "fairness"
    return "confirmed" if confirmed(first) and not confirmed(other) else None


@given(st.lists(plans, min_size=1, max_size=7), st.sampled_from(LEVELS))
def test_nothing_that_costs_clearly_less_stands_behind_the_first_without_a_rule(drawn, level):
    first, *others = by_precedence(drawn, asked(level))
    assert len(others) == len(drawn) - 1
    for each in others:
        assert excused(first, each, level) is not None


@given(st.lists(plans, min_size=1, max_size=7), st.sampled_from(LEVELS))
def test_whoever_comes_first_costs_about_what_the_cheapest_costs(drawn, level):
    first, *_ = by_precedence(drawn, asked(level))
    best = min(level_cost(each, level) for each in drawn)
    assert level_cost(first, level) <= MOST * best * (1 + 1e-12)


@given(st.lists(plans, min_size=1, max_size=7), st.sampled_from(LEVELS))
def test_a_plan_that_starves_a_job_comes_first_only_where_no_fair_one_equals_it(drawn, level):
    first, *_ = by_precedence(drawn, asked(level))
    fair = [each for each in drawn if spares(each, level)]
    if not spares(first, level) and fair:
        best = min(drawn, key=lambda each: level_cost(each, level))
        least = min(fair, key=lambda each: level_cost(each, level))
        assert level_cost(least, level) > (1 + COMPARED) * level_cost(best, level)


@pytest.mark.parametrize(("objective", "first"), [("throughput", "naive"), ("makespan", "mps")])
def test_for_pace_alone_no_job_is_starved_for_a_few_per_cent(objective, first):
    drawn = [plan("mps", Interval(1, 1, 1), slowed=20.0), plan("naive", Interval(1.05, 1.05, 1.05))]
    ordered = by_precedence(drawn, asked(objective=objective))
    assert ordered[0].forecast.sharing.mode == first


@given(prices, st.sampled_from(LEVELS))
def test_being_measured_decides_only_between_plans_closer_than_we_can_compare(price, level):
    for times, first in ((1 + 0.9 * COMPARED, "mps"), (1 + 1.1 * COMPARED, "mig")):
        drawn = [plan("mig=3g.71gb,3g.71gb", price), plan("mps", price.scaled(times))]
        assert by_precedence(drawn, asked(level))[0].forecast.sharing.mode == first


@given(st.lists(plans, min_size=2, max_size=7), st.sampled_from(LEVELS))
def test_every_plan_is_told_the_rule_by_which_it_precedes_the_next(drawn, level):
    ordered = by_precedence(drawn, asked(level))
    assert ordered[-1].precedes_by is None
    for each, after in pairwise(ordered):
        match each.precedes_by:
            case "cost":
                assert level_cost(each, level) <= level_cost(after, level)
            case "simplicity":
                assert simplicity(each.forecast) < simplicity(after.forecast)
                assert level_cost(each, level) <= (1 + CLOSE) * level_cost(after, level)
            case "gain":
                assert each.forecast.sharing.mode == "serial"
                assert level_cost(each, level) <= (1 + WORTH) * level_cost(after, level)
            case "confirmed":
                assert confirmed(each) > confirmed(after)
            case "fairness":
                assert spares(each, level) > spares(after, level)
            case other:
                raise AssertionError(other)


@given(st.lists(plans, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_plans_were_tried_says_nothing(drawn, random):
    unlike = list({each.price.p50: each for each in drawn}.values())
    mixed = random.sample(unlike, len(unlike))
    there, back = (by_precedence(those, asked()) for those in (unlike, mixed))
    assert [each.forecast for each in there] == [each.forecast for each in back]


def test_of_plans_that_cost_the_same_the_simplest_comes_first():
    same = [plan(sharing, Interval(0.9, 1.0, 1.1)) for sharing in reversed(FROM_SIMPLE)]
    assert [simplicity(each.forecast)[0] for each in by_precedence(same, asked())] == [*range(7)]
    assert {each.precedes_by for each in by_precedence(same, asked())} <= {
        "gain", "simplicity", "confirmed", None,
    }  # fmt: skip


@pytest.mark.parametrize(("gain", "first"), [(1.002, "serial"), (1.009, "serial"), (1.02, "mps")])
def test_sharing_that_gains_less_than_a_hundredth_is_not_advised(gain, first):
    alone, shared = plan("serial", Interval(1.0, 1.0, 1.0).scaled(gain)), Interval(0.9, 1.0, 1.1)
    best, following = by_precedence([plan("mps", shared), alone], asked())
    assert best.forecast.sharing.mode == first
    assert best.precedes_by == ("gain" if first == "serial" else "cost")
    assert following.precedes_by is None


def test_simplicity_is_not_worth_what_lies_within_wide_intervals():
    simple = plan("mps", Interval(0.9, 1.03, 1.2))
    quick = plan("mps=43,57", Interval(0.8, 1.0, 1.2))
    assert tied(simple.price, quick.price)
    assert [each.price.p50 for each in by_precedence([simple, quick], asked())] == [1.0, 1.03]


def test_by_upper_ends_the_first_may_have_the_greater_median():
    sure, unsure = (
        plan("mps=43,57", Interval(1.0, 1.1, 1.2)),
        plan("mps", Interval(0.9, 1.0, 1.4)),
    )
    assert by_precedence([sure, unsure], asked("p50"))[0].forecast is unsure.forecast
    assert by_precedence([sure, unsure], asked("p95"))[0].forecast is sure.forecast


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
    st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 0.1, 0.4]), st.sampled_from(LEVELS),
    st.sampled_from(["makespan", "throughput", "energy", "mean-completion"]),
)  # fmt: skip
def test_rank_1_is_the_best_one_shown_whatever_is_predicted(seed, wide, level, objective):
    advised = ranked([BERT, RESNET], H200, Drawn(seed, wide), objective, level=level)
    shown = [Priced(each, cost(each, objective)) for each in advised.plans]
    assert by_precedence(shown, asked(level, objective))[0].forecast is advised.best
    for each in shown[1:]:
        assert OBJECTIVES[objective].saves_energy or excused(shown[0], each, level) is not None
    assert ("; before 2 " in advised.best.why) or advised.best.precedes_by == "cost"


def test_the_words_name_the_job_that_is_slowed_and_the_rule():
    class Starving(StandIn):
        """MPS does the most and slows one job twentyfold, naive sharing does nearly as much."""

        def _steps(self, profiles, sharing):
            if len(profiles) == 1:
                return [each.step_s for each in profiles]
            if sharing == Mps():
                return [20 * each.step_s if each.name == BERT.name else each.step_s
                        for each in profiles]  # fmt: skip
            times = 2 / 1.04 if sharing == Naive() else 3.0
            return [times * each.step_s for each in profiles]

    jobs = [replace(BERT, epochs=1), replace(RESNET, epochs=300)]
    advised = ranked(jobs, H200, Starving(wide=0.2), "throughput")
    by_name = {str(each.sharing): each for each in advised.plans}
    assert "bert-base-finetune-bs16 is slowed 20x" in by_name["mps"].why
    assert "is slowed" not in by_name["naive"].why
    assert by_name["mps"].prediction.weighted_speedup > by_name["naive"].prediction.weighted_speedup
    assert by_name["naive"].rank < by_name["mps"].rank
    assert advised.best is by_name["naive"]
    before = advised.plans[by_name["mps"].rank - 2].why
    assert "as the best of those nearly as good that slow no job over 10x" in before


def test_the_sentence_and_the_document_say_by_what_rule_the_first_precedes():
    advised = ranked([RESNET] * 3, H200, StandIn(), "makespan")
    best, following = advised.plans[:2]
    assert best.makespan_s == pytest.approx(following.makespan_s)
    assert best.precedes_by == "simplicity"
    assert "before 2 as the simplest of those within 0.25%" in best.why
    assert "1 is first as the simplest of those within 0.25%" in answer(advised)
    rules = [each["precedes_by"] for each in recommendation_document(advised)["plans"]]
    assert rules == [each.precedes_by for each in advised.plans]


def test_runs_of_a_kind_on_another_gpu_count_as_runs_of_it():
    """Else one after another, which needs no runs, would come before what costs about as much."""
    learnt = plan("mps", Interval(0.9, 1.0, 1.1))
    unseen = {"confirmed_on_hardware": False, "estimated_from": "h200-141gb"}
    serial = plan("serial", Interval(0.9, 1.03, 1.1))
    for ran_elsewhere, first in ((True, "mps"), (False, "serial")):
        prediction = replace(learnt.forecast.prediction, **unseen, ran_elsewhere=ran_elsewhere)
        there = replace(learnt, forecast=replace(learnt.forecast, prediction=prediction))
        best, *_ = by_precedence([serial, there], asked())
        assert str(best.forecast.sharing) == first


def due(each):
    """`each` whose first job has a deadline, of which it takes the cost of `each`."""
    first, *others = each.forecast.ends_s
    deadlines_s = (first.p50 / each.price.p50, *(None for _ in others))
    return replace(each, forecast=replace(each.forecast, deadlines_s=deadlines_s))


@given(st.lists(plans, min_size=1, max_size=7))
def test_of_plans_that_keep_deadlines_about_as_well_all_jobs_end_soonest_under_the_first(drawn):
    drawn = [due(each) for each in drawn]
    first, *others = by_precedence(drawn, asked(objective="deadlines"))
    least = min(level_cost(each, "p50") for each in drawn)
    assert level_cost(first, "p50") <= MOST * least * (1 + COMPARED)
    for each in others:
        close = level_cost(each, "p50") <= (1 + COMPARED) * least
        fair = spares(each, "p50") and confirmed(each)
        punctual = not each.forecast.late("p50") or first.forecast.late("p50")
        if close and fair and punctual:
            soonest = each.forecast.makespan_interval_s.p50
            assert first.forecast.makespan_interval_s.p50 <= MOST * soonest


def test_a_plan_that_is_late_never_goes_before_one_as_close_that_is_not():
    slow, quick = "serial", "mps"
    on_time = due(plan(slow, Interval(0.98, 0.98, 0.98)))
    late = due(plan(quick, Interval(1.01, 1.01, 1.01)))
    for drawn in ([on_time, late], [late, on_time]):
        assert by_precedence(drawn, asked(objective="deadlines"))[0].forecast is on_time.forecast


def test_that_all_are_done_soonest_is_said_to_be_why():
    hurried = plan("mps", Interval(0.5, 0.51, 0.52))
    slow = plan("serial", Interval(0.5, 0.5, 0.5))
    best, _ = by_precedence([due(slow), due(hurried)], asked(objective="deadlines"))
    assert best.forecast.sharing == Mps()
    assert best.precedes_by == "makespan"
