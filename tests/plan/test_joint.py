"""The joint interval of two plans: what both get wrong cancels, what one gets wrong stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import COMMON, OBJECTIVES, cost_ratio, known_cost, tied
from advisor.prediction.prediction import LEVELS, Interval
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import StandIn

JOBS = tuple(
    Job(synthetic.profile(name, host_s=host_s, gpu_s=gpu_s), deadline_s=due_s)
    for name, host_s, gpu_s, due_s in (
        ("resnet26-cifar10-bs128", 0.007, 0.002, 900.0),
        ("resnet152-imagenet-bs128", 0.01, 0.2, 9000.0),
    )
)
WAYS = ("serial", "naive", "mps", "mps=43,57", "mig=3g.71gb,3g.71gb", "serial[2];serial[1]")
ways, objectives = st.sampled_from(WAYS), st.sampled_from(list(OBJECTIVES))
widths = st.floats(0.001, 0.8)


def seen(way, wide=0.1):
    return forecast(Mixes(JOBS, StandIn(wide=wide)), parse_sharing(way))


@st.composite
def intervals(draw):
    middle, down, up = draw(st.tuples(*[st.floats(0.05, 20.0)] + [st.floats(0.0, 2.0)] * 2))
    return Interval(middle / (1 + down), middle, middle * (1 + up))


@given(ways, ways, objectives, widths, st.sampled_from(LEVELS))
def test_the_interval_of_a_gain_holds_the_ratio_of_both_costs(one, other, objective, wide, level):
    plans = seen(one, wide), seen(other, wide)
    ratio = cost_ratio(*plans, objective, level)
    first, second = (known_cost(each, objective).at(level) for each in plans)
    assert ratio.p05 <= ratio.p50 <= ratio.p95
    assert ratio.p50 == pytest.approx(first / second)


@given(ways, objectives, widths, st.sampled_from(LEVELS))
def test_a_plan_gains_exactly_nothing_over_itself(way, objective, wide, level):
    plan = seen(way, wide)
    assert cost_ratio(plan, plan, objective, level) == Interval(1, 1, 1)
    assert tied(plan, plan, objective, level)


@given(intervals(), intervals(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_more_two_numbers_err_together_the_surer_is_their_ratio(one, other, common, less):
    sure, unsure = one.over(other, max(common, less)), one.over(other, min(common, less))
    slack = 1 + 1e-9
    assert unsure.p05 <= sure.p05 * slack
    assert sure.p95 <= unsure.p95 * slack
    assert unsure.p05 <= sure.p50 * slack


@given(intervals(), st.floats(0.1, 10))
def test_numbers_that_always_err_together_have_a_ratio_without_error(one, factor):
    ratio = one.over(one.scaled(factor), 1.0)
    for level in LEVELS:
        assert ratio.at(level) == pytest.approx(1 / factor, rel=1e-6)


@given(intervals(), intervals())
def test_errors_without_a_common_cause_add_up_as_independent_ones(one, other):
    inverse = Interval(1 / other.p95, 1 / other.p50, 1 / other.p05)
    apart, product = one.over(other, 0.0), one.times(inverse)
    for level in LEVELS:
        assert apart.at(level) == pytest.approx(product.at(level), rel=1e-6)


@given(intervals(), intervals())
def test_a_ratio_the_other_way_round_is_the_inverse(one, other):
    there, back = one.over(other, COMMON), other.over(one, COMMON)
    for level, opposite in zip(LEVELS, reversed(LEVELS), strict=True):
        assert there.at(level) == pytest.approx(1 / back.at(opposite))


@given(ways, ways, objectives, widths)
def test_two_plans_tie_whichever_comes_first(one, other, objective, wide):
    plans = seen(one, wide), seen(other, wide)
    assert tied(*plans, objective) == tied(*reversed(plans), objective)


@pytest.mark.parametrize("objective", ["makespan", "throughput"])
def test_a_gain_over_serial_is_less_sure_the_less_sure_serial_is(objective):
    widths_of_gain = []
    for wide in (0.01, 0.1, 0.4):
        ratio = cost_ratio(seen("serial", wide), seen("mps", 0.01), objective)
        widths_of_gain.append(ratio.p95 / ratio.p05)
    assert widths_of_gain == sorted(widths_of_gain)
    assert widths_of_gain[-1] > 1.5 * widths_of_gain[0]


@given(ways, widths)
def test_a_forecast_by_itself_knows_what_serial_takes_and_how_sure_that_is(way, wide):
    plan, serial = seen(way, wide), seen("serial", wide)
    for level in LEVELS:
        assert plan.serial_interval_s.at(level) == pytest.approx(
            serial.makespan_interval_s.at(level)
        )
    assert plan.speedup_vs_serial == pytest.approx(
        plan.serial_interval_s.p50 / plan.makespan_interval_s.p50
    )
