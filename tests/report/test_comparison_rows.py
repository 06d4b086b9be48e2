"""Two plans side by side: what is shown of all jobs, and of each."""

from dataclasses import replace

from advisor.report.comparison_rows import side_by_side
from tests.plan.test_comparison import LARGE, SMALL, compared


def labels(part):
    return [row[0] for row in part.rows]


def test_time_memory_power_and_energy_of_both_plans_then_each_job():
    whole, *jobs = side_by_side(compared("serial", "mps"))
    assert labels(whole) == [
        "until all are done", "memory", "power", "energy until then", "stands on",
    ]  # fmt: skip
    assert [each.title for each in jobs] == [SMALL.name, LARGE.name]
    assert all(labels(each) == ["times as long as alone", "ends after", "memory"] for each in jobs)
    assert whole.said.startswith(("mps is", "serial is", "mps and serial"))


def test_copies_of_which_the_same_is_said_are_shown_once():
    _, *jobs = side_by_side(compared("naive", "mps", jobs=(SMALL,) * 5))
    assert [each.title for each in jobs] == [SMALL.name]


def test_what_was_not_measured_is_said_and_no_change_of_it_claimed():
    dark = replace(SMALL, profile=replace(SMALL.profile, power_w=None, energy_j=None))
    whole, *_ = side_by_side(compared("serial", "mps", jobs=(dark, LARGE)))
    assert ("power", "not measured", "not measured", "") in whole.rows
    assert ("energy until then", "not measured", "not measured", "") in whole.rows


def test_who_misses_a_deadline_is_named_where_there_is_one():
    hurried = replace(LARGE, deadline_s=1.0)
    whole, *_ = side_by_side(compared("serial", "mps", jobs=(SMALL, hurried)))
    (deadlines,) = [row for row in whole.rows if row[0] == "deadlines"]
    assert f"missed by {LARGE.name}" in deadlines


def test_a_plan_that_is_estimated_is_labelled_so():
    whole, *_ = side_by_side(compared("mps", "mig=3g.71gb,3g.71gb"))
    _, first, second, _ = whole.rows[-1]
    assert first == "predicted, from real runs of this kind"
    assert second == "estimated, not confirmed on hardware"


def test_numbers_that_our_error_may_explain_are_called_equal():
    whole, *jobs = side_by_side(compared("mps", "mps"))
    assert {row[-1] for part in (whole, *jobs) for row in part.rows} <= {"same", ""}
