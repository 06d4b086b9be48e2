from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.bottlenecks import binding
from advisor.plan.objectives import tied
from advisor.plan.ranking import ranked
from advisor.plan.reasons import gap_in_words, why
from advisor.plan.recommendation import LeftOut
from advisor.prediction.interval import Interval
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
ADA, BEN = (Job(GPU_BOUND.profile, user=user) for user in ("ada", "ben"))


@st.composite
def intervals(draw):
    bounds = st.floats(min_value=0.1, max_value=10.0)
    return Interval(*sorted(draw(st.tuples(bounds, bounds, bounds))))


@given(intervals(), intervals())
def test_a_difference_is_only_claimed_where_no_median_lies_in_the_other_interval(own, best):
    said = gap_in_words(own, best, None)
    alike = said == "as good as the best"
    assert alike or (", within our error" in said) == tied(own, best)
    if own.p95 >= best.p50 >= own.p05:
        assert alike or ", within our error" in said


@given(intervals(), intervals())
def test_the_best_and_the_next_say_the_same_of_each_other(best, following):
    said, said_there = gap_in_words(best, best, following), gap_in_words(following, best, None)
    assert ("within our error" in said) == ("within our error" in said_there)
    if "as good" not in said:
        assert ("behind" in said) == ("ahead" in said_there)


def test_the_only_plan_says_so():
    one = Interval(1.0, 1.0, 1.0)
    assert gap_in_words(one, one, None) == "nothing else is possible"


def test_the_best_plan_names_what_was_ruled_out_and_by_which_rule():
    best, *others = ranked([ADA, BEN], H200, StandIn(), "makespan").plans
    assert "; ruled out: mps (MPS serves one user at a time, and these jobs are of" in best.why
    assert not any("ruled out" in plan.why for plan in others)


def test_many_ways_that_were_ruled_out_are_counted():
    best = ranked([ADA, BEN], H200, StandIn(), "makespan").best
    bound = binding([ADA, BEN], H200, best.prediction)
    left_out = [LeftOut(f"mps={limit}", "does not fit") for limit in (10, 20, 30, 40)]
    said = why(best.prediction, bound, "first", left_out)
    assert said.endswith(
        "first; ruled out: mps=10 (does not fit), mps=20 (does not fit) and 2 more"
    )
