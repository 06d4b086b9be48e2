"""What choices gave away, on each host of the sets that ran on two."""

from dataclasses import replace

import pytest

from research.choices_by_host import choices_by_host, said
from tests.validate.test_panels import evaluation, ran

DAYS = {"here": "2026-11-21", "elsewhere": "2026-11-24"}


def on(host, sharing, slowdown, predicted):
    made = ran(sharing, slowdown, predicted, run_id=f"panel-00-{sharing}-{host}")
    origin = replace(made.run.provenance, date=f"{DAYS[host]}T00:00:00+00:00")
    return replace(made, run=replace(made.run, provenance=origin))


def test_a_choice_may_be_right_on_one_host_and_wrong_on_another():
    here = [on("here", "mps", 1.2, 1.3), on("here", "naive", 1.5, 1.6)]
    elsewhere = [on("elsewhere", "mps", 1.6, 1.3), on("elsewhere", "naive", 1.2, 1.6)]
    first, second = choices_by_host(evaluation(*here, *elsewhere))
    assert (first.host, second.host) == ("panel, 2026-11-21", "panel, 2026-11-24")
    assert first.regret.mean == pytest.approx(0.0)
    assert second.regret.mean == pytest.approx(1 - 1.2 / 1.6)
    assert "panel, 2026-11-24: 25.0 % in the mean" in said((first, second))


def test_sets_that_ran_on_one_host_only_compare_no_hosts():
    runs = [on("here", "mps", 1.2, 1.3), on("here", "naive", 1.5, 1.6)]
    assert choices_by_host(evaluation(*runs)) == ()
    assert said(()) == ""
