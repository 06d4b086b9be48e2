"""Eager profiles as captured and compiled ones."""

from dataclasses import replace

import pytest

from advisor.prediction.execution_transfer import CAPTURED, COMPILED, Effect, executed
from tests import synthetic

SAME = Effect(host=1.0, cast_host=1.0, kernels=1.0)
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


@pytest.mark.parametrize(
    ("kind", "share"),
    [("norm", 0.2), ("copy", 0.6), ("conv", 0.8), ("gemm", 1.0), ("host copy", 1.0)],
)
def test_kernels_shrink_by_their_class(kind, share):
    compiled = replace(SAME, norms=0.2, fusible=0.6, convolutions=0.8)
    found = executed(replace(BUSY, trace=replace(BUSY.trace, classes=(kind,))), compiled)
    assert found.gpu_s == pytest.approx(0.010 * share)
    assert found.step_s == pytest.approx(max(found.gpu_s, BUSY.host_s))


def test_the_host_of_a_job_that_casts_is_another_one():
    effect = replace(SAME, host=1.2, cast_host=0.5)
    cast = synthetic.profile("resnet26-cifar10-bs128-amp", host_s=0.010, gpu_s=0.002)
    assert executed(HOST, effect).step_s == pytest.approx(0.012)
    assert executed(cast, effect).step_s == pytest.approx(0.005)


def test_without_a_trace_the_gpu_part_counts_as_of_products():
    found = executed(replace(BUSY, trace=None), replace(SAME, kernels=0.8, fusible=0.5))
    assert (found.gpu_s, found.trace) == (pytest.approx(0.008), None)
