"""A real run on another host, taken for a prediction."""

from dataclasses import replace

import pytest

from research.another_host import elsewhere, in_short, said
from tests.validate.test_panels import evaluation, ran


def at(hour, slowdown, predicted, sharing="mps", day=21):
    made = ran(sharing, slowdown, predicted, run_id=f"panel-00-{sharing}-{day}-{hour}")
    origin = replace(made.run.provenance, date=f"2026-11-{day}T{hour:02}:00:00+00:00")
    return replace(made, run=replace(made.run, provenance=origin))


def test_a_run_on_another_host_is_as_far_from_this_one_as_their_steps_are():
    found = elsewhere(evaluation(at(1, 2.0, 2.2), at(1, 1.6, 2.2, day=24)))
    every = found[0]
    assert (every.mode, every.bound) == ("mps", "all")
    assert every.apart == pytest.approx((1.6 / 2.0 - 1) / -2 + (2.0 / 1.6 - 1) / 2)
    assert every.mape == pytest.approx((2.2 / 2.0 - 1 + 2.2 / 1.6 - 1) / 2)


def test_what_ran_within_hours_or_in_another_way_compares_no_hosts():
    soon = elsewhere(evaluation(at(1, 2.0, 2.2), at(6, 1.6, 2.2)))
    other = elsewhere(evaluation(at(1, 2.0, 2.2), at(1, 1.6, 2.2, sharing="naive", day=24)))
    assert soon == other == ()
    assert said(soon) == in_short(soon) == ()


def test_the_mean_over_several_other_hosts_is_what_a_run_is_compared_with():
    runs = (at(1, 2.0, 2.0), at(1, 1.0, 2.0, day=22), at(1, 3.0, 2.0, day=23))
    assert elsewhere(evaluation(*runs))[0].apart == pytest.approx((0.0 + 1.5 + 0.5) / 3)


def test_the_sentence_and_the_table_name_the_ways_of_sharing():
    found = elsewhere(evaluation(at(1, 2.0, 2.2), at(1, 1.6, 2.2, day=24)))
    assert "differ in the mean by 22.5 % (MPS)" in in_short(found)[0]
    assert said(found)[1].splitlines()[2].startswith("| MPS | all | ")
