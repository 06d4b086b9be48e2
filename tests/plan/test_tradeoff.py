"""Time against energy: which plans are worth a look, and which cannot be drawn."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.ranking import ranked
from advisor.plan.tradeoff import pareto_front, tradeoff
from advisor.prediction.interval import Interval
from advisor.report.plan_charts import tradeoff_chart
from advisor.report.tradeoff_text import front_text, missing_text
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn
from tests.report.test_plan_charts import drawn

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
LARGE = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
# Few values, so that many are equal.
POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)))


def advised(*jobs):
    return ranked(jobs, H200, StandIn(), "makespan")


def dominated(point, others):
    return any(
        each != point and all(theirs <= own for theirs, own in zip(each, point, strict=True))
        for each in others
    )


@given(POINTS)
def test_the_front_is_what_no_other_point_dominates(points):
    front = pareto_front(points)
    assert set(front) == {at for at, each in enumerate(points) if not dominated(each, points)}
    assert [points[at] for at in front] == sorted(points[at] for at in front)


def test_the_fastest_and_the_most_frugal_plan_are_on_the_front():
    points = tradeoff(advised(SMALL, LARGE).plans)
    for cost in ("makespan_s", "energy_j"):
        assert min(points, key=lambda each: getattr(each, cost).p50).on_front


def test_all_plans_are_drawn_with_their_numbers_and_the_front_is_named():
    found = advised(SMALL, LARGE)
    points = tradeoff(found.plans)
    rows, _ = drawn(tradeoff_chart(found, points, found.plans[1]))
    assert {row["number"] for row in rows} == set(range(len(found.plans)))
    assert {row["plan"] for row in rows if row["shown"]} == {rows_name(rows, 1)}
    said = front_text(found, points, found.plans[1])
    assert all(f"{each.plan.rank} (" in said for each in points if each.on_front)
    assert missing_text(found, points) == ""


def test_ranks_that_would_lie_on_each_other_are_written_side_by_side():
    found = advised(SMALL, LARGE)
    points = [
        replace(each, makespan_s=certain(at), energy_j=certain(at))
        for each, at in zip(tradeoff(found.plans), (100, 101, 110, 200), strict=False)
    ]
    rows, _ = drawn(tradeoff_chart(found, points, found.plans[0]))
    assert {"1, 2", "3", "4"} <= {row["rank"] for row in rows}


def certain(value):
    return Interval(value, value, value)


def rows_name(rows, number):
    return next(row["plan"] for row in rows if row["number"] == number)


def test_plans_whose_energy_or_length_is_not_known_are_named_with_what_is_missing():
    dark = Job(replace(SMALL.profile, power_w=None, energy_j=None))
    workload = replace(SMALL.profile.workload, examples_per_epoch=None)
    endless = Job(replace(SMALL.profile, workload=workload))
    for job, why in ((dark, "power of every job"), (endless, "every job's length")):
        found = advised(job, LARGE)
        assert tradeoff(found.plans) == ()
        said = missing_text(found, ())
        assert why in said
        assert f"{found.best.rank} (" in said
