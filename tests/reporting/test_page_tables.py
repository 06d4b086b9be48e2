"""What the page's tables say of plans that nothing was measured for."""

from dataclasses import replace

import pytest

from advisor.reporting.page import caution, job_rows
from tests.reporting.test_drawing import mix


def test_a_plan_with_real_runs_behind_it_needs_no_caution():
    assert caution(mix("naive", 1024, 1024)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"confirmed_on_hardware": False}, "Estimated, not confirmed on hardware"),
        ({"estimated_from": "h200-141gb"}, "Measured on h200-141gb and translated"),
        ({"power_cap_w": 300.0}, "power cap of 300 W: not measured on this GPU: translated from"),
    ],
)
def test_a_plan_without_real_runs_says_so(change, said):
    assert said in caution(replace(mix("mig=3g.71gb", 1024), **change))


def test_a_job_of_unknown_length_has_a_pace_but_no_epoch():
    (row,) = job_rows(mix("naive", 1024))
    assert row["an epoch"] == "length unknown"
    assert "(" in row["a step"]
