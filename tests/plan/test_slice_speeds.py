"""How fast jobs are alone on instances of each size: what a smaller one costs them."""

from dataclasses import replace

import pytest

from advisor.errors import NothingFits
from advisor.hardware.catalogue import gpu
from advisor.plan.slice_batches import WHOLE
from advisor.plan.slice_speeds import slice_speeds
from advisor.report.slice_speed_chart import slice_speed_chart, slice_speed_text
from tests import synthetic
from tests.plan.stand_in import H200, StandIn
from tests.report.test_plan_charts import drawn

SMALL = synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002)
BIG = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2, memory_mib=60_000)


def speeds(*profiles):
    return slice_speeds(profiles, H200, StandIn())


def test_a_job_is_as_fast_as_on_the_whole_gpu_there_and_no_faster_anywhere():
    found = speeds(SMALL, BIG)
    for each in (each for each in found if each.speed is not None):
        assert each.speed.p50 <= 1 + 1e-9
        if each.where == WHOLE:
            assert each.speed.p50 == pytest.approx(1)
    assert [each.where for each in found if each.job == SMALL.name][-1] == WHOLE


def test_speed_never_falls_with_more_compute_slices():
    found = [each for each in speeds(SMALL) if each.speed is not None]
    ordered = sorted(found, key=lambda each: each.compute_share)
    medians = [each.speed.p50 for each in ordered]
    assert medians == sorted(medians)
    assert ordered[0].compute_share == pytest.approx(1 / 7)


def test_a_job_that_an_instance_does_not_hold_has_no_point_there_and_is_named():
    found = speeds(BIG)
    assert {each.where for each in found if each.speed is None} == {
        "1g.18gb", "1g.35gb", "2g.35gb",
    }  # fmt: skip
    rows, _ = drawn(slice_speed_chart(found))
    assert {row["where"] for row in rows if "job" in row} == {
        "3g.71gb", "4g.71gb", "7g.141gb", "whole GPU",
    }  # fmt: skip
    said = slice_speed_text(found, [BIG])
    assert f"{BIG.name} does not fit 1g.18gb, 1g.35gb, 2g.35gb." in said
    assert "On instances this is estimated, not confirmed on hardware" in said


def test_of_a_job_estimated_from_another_gpu_the_whole_gpu_is_an_estimate_too():
    elsewhere = replace(SMALL, estimated_from="a100-40gb")
    said = slice_speed_text(speeds(elsewhere), [elsewhere])
    assert "This is estimated, not confirmed on hardware" in said


def test_a_gpu_without_mig_says_so():
    without = gpu("l40s-48gb")
    with pytest.raises(NothingFits, match="has no MIG"):
        slice_speeds([SMALL], without, StandIn(without))
