"""What the page's tables say of plans that nothing was measured for."""

from dataclasses import replace

import pytest

from advisor.report.documents import job_rows
from advisor.report.headline import basis, caution
from advisor.workload.job import Job
from tests import synthetic
from tests.report.test_gpu_drawing import mix


def test_a_plan_with_real_runs_behind_it_needs_no_caution():
    assert caution(mix("naive", 1024, 1024)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"confirmed_on_hardware": False}, "Estimated, not confirmed on hardware"),
        ({"estimated_from": "h200-141gb"}, "Estimated from h200-141gb, never measured"),
        ({"power_cap_w": 300.0}, "power cap of 300 W: not measured on this GPU: translated from"),
    ],
)
def test_a_plan_without_real_runs_says_so(change, said):
    assert said in caution(replace(mix("mig=3g.71gb", 1024), **change))


def test_another_gpus_figures_are_labelled_with_its_name():
    plan = replace(mix("naive", 1024), estimated_from="a100-40gb")
    said = "estimated from a100-40gb, never measured on an h200-141gb"
    assert basis(plan) == said
    assert basis(mix("naive", 1024)) == "predicted, from real runs of this kind"


def test_a_job_of_unknown_length_has_a_pace_but_no_epoch():
    (row,) = job_rows([Job(synthetic.profile(host_s=0.06))], mix("naive", 1024))
    assert row["an epoch"] == "length unknown"
    assert row["a step alone"] == "60.0 ms, measured"
    assert "(" in row["a step"]


def test_copies_of_which_the_same_is_said_have_one_row_that_counts_them():
    small = Job(synthetic.profile(host_s=0.06))
    rows = job_rows([small] * 41, mix("naive", *[1024] * 40, 2048))
    assert [row["job"].partition(" x")[2] for row in rows] == ["40", ""]
