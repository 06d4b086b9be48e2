"""Eager profiles as captured and compiled ones."""

from dataclasses import replace

import pytest

from advisor.prediction.execution_transfer import CAPTURED, COMPILED, Effect, executed
from tests import synthetic

SAME = Effect(1.0, 1.0, 1.0)
HOST = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)
BUSY = synthetic.profile("resnet26-cifar10-bs128", host_s=0.004, gpu_s=0.010)


def test_what_changes_nothing_leaves_a_profile_as_it_is():
    for each in (HOST, BUSY):
        found = executed(each, SAME)
        assert (found.step_s, found.gpu_s, found.host_s, found.trace) == (
            each.step_s, each.gpu_s, each.host_s, each.trace)  # fmt: skip


@pytest.mark.parametrize("profile", [HOST, BUSY])
@pytest.mark.parametrize("effect", [*CAPTURED, *COMPILED])
def test_no_step_is_shorter_than_its_gpu_part_or_its_host_path(profile, effect):
    found = executed(profile, effect)
    assert found.step_s >= found.gpu_s * (1 - 1e-9)
    assert found.step_s >= found.host_s * (1 - 1e-9)
    assert sum(found.trace.duration_us) / sum(profile.trace.duration_us) == pytest.approx(
        found.gpu_s / profile.gpu_s
    )


def test_only_kernels_that_can_be_fused_shrink_by_fusing():
    norms = replace(BUSY, trace=replace(BUSY.trace, classes=("norm",)))
    found = executed(norms, Effect(1.0, 0.6, 1.0))
    assert found.gpu_s == found.step_s == pytest.approx(0.006)
    assert executed(BUSY, Effect(1.0, 0.6, 1.0)).gpu_s == BUSY.gpu_s  # of products


def test_without_a_trace_the_gpu_part_counts_as_of_products():
    found = executed(replace(BUSY, trace=None), Effect(1.0, 0.5, 0.8))
    assert (found.gpu_s, found.trace) == (pytest.approx(0.008), None)
