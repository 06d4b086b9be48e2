"""Profiles at batch sizes at which nobody measured, from those at others."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.catalogue import gpu
from advisor.prediction.batch_profile import at_batch
from advisor.prediction.estimate_doubt import estimate_spread
from advisor.prediction.estimated_profile import found_profile
from advisor.prediction.memory import Context, need
from advisor.prediction.memory_edge import Edge
from advisor.workload.estimates import estimated_profiles, write_estimates
from advisor.workload.other_batches import batch_name
from advisor.workload.store import load_profile, read_profile
from advisor.workload.writing import profile_text
from tests import synthetic

H200, A100 = gpu("h200-141gb"), gpu("a100-40gb")
WORK = "resnet50-imagenet64"


def measured(batch, **numbers):
    """ResNet-50 at `batch`: 10 ms on the host, 2 ms and 0.1 ms an example on the GPU."""
    taken = {"host_s": 0.01, "gpu_s": 0.002 + 1e-4 * batch, "memory_mib": 1000 + 20 * batch}
    return synthetic.profile(f"{WORK}-bs{batch}", blocks=10 * batch, **(taken | numbers))


SMALL, LARGE = measured(32), measured(256)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    for each in (SMALL, LARGE):
        path = tmp_path / each.gpu / f"{each.name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(profile_text(each))
    return tmp_path


def test_the_host_is_as_slow_at_any_size_and_the_gpu_as_its_examples_ask():
    found = at_batch([SMALL, LARGE], 128)
    assert found.name == f"{WORK}-bs128"
    assert found.host_s == pytest.approx(0.01)
    assert found.gpu_s == pytest.approx(0.002 + 1e-4 * 128, rel=0.1)
    assert found.step_s == pytest.approx(max(found.host_s, found.gpu_s))
    assert found.memory.allocated_mib == pytest.approx(measured(128).memory.allocated_mib)
    assert found.memory.device_mib == pytest.approx(measured(128).memory.device_mib)


def test_where_the_host_sets_the_pace_a_larger_batch_costs_nothing():
    assert at_batch([SMALL, LARGE], 64).step_s == pytest.approx(SMALL.step_s)


def test_a_host_that_was_slow_for_a_moment_makes_nothing_on_the_gpu_shorter():
    stuttered = replace(measured(64), host_s=0.02)  # its steps took 10 ms in quieter windows
    found = at_batch([measured(16), stuttered], 200)
    assert found.step_s == pytest.approx(found.gpu_s)


def test_a_size_that_was_measured_is_that_profile():
    assert at_batch([SMALL, LARGE], 32) is SMALL


def test_kernels_have_blocks_in_proportion_and_take_what_the_gpu_does():
    found = at_batch([SMALL, LARGE], 128)
    assert set(found.trace.blocks) == {10 * 128}
    assert 1e-6 * sum(found.trace.duration_us) == pytest.approx(found.gpu_s)
    assert max(found.trace.launch_us) <= 1e6 * found.host_s


def test_the_optimizer_does_not_ask_how_large_the_batch_was():
    def half_optimizer(profile):
        kernels = len(profile.trace.class_of)
        trace = replace(
            profile.trace, classes=("gemm", "optimizer"), class_of=(0, 1) * (kernels // 2)
        )
        return replace(profile, trace=trace)

    found = at_batch([half_optimizer(SMALL), half_optimizer(LARGE)], 200)
    assert found.trace.duration_us[1] == LARGE.trace.duration_us[1]
    assert found.trace.blocks[:2] == (2000, LARGE.trace.blocks[1])
    assert found.trace.duration_us[0] < LARGE.trace.duration_us[0]


def test_a_slow_host_at_one_size_does_not_look_like_a_slow_workload():
    slow = measured(256, host_s=0.02)
    slow = replace(slow, host_check_s=2.6 * SMALL.host_check_s)  # 2.6 ** 0.73 is about 2
    assert at_batch([SMALL, slow], 64).host_s == pytest.approx(0.01, rel=0.02)


def test_bare_numbers_at_two_sizes_suffice():
    def bare(each):
        return replace(each, host_s=None, gpu_s=None, trace=None, counters=None, mps=None,
                       power_w=None, energy_j=None, idle_power_w=None)  # fmt: skip

    found = at_batch([bare(SMALL), bare(LARGE)], 128)
    assert SMALL.step_s < found.step_s < LARGE.step_s
    assert found.trace is None
    assert found.power_w is None
    assert found.other_batches.batches == (32, 256)


def test_power_is_that_of_a_fuller_gpu():
    small, large = replace(SMALL, power_w=150.0), replace(LARGE, power_w=500.0)
    assert 150 < at_batch([small, large], 128).power_w < 500


def test_it_is_labelled_and_less_sure_the_farther_out():
    inside, outside = at_batch([SMALL, LARGE], 240), at_batch([SMALL, LARGE], 900)
    assert inside.is_estimate
    assert not SMALL.is_estimate
    assert estimated_profiles([SMALL, inside]) == (inside,)
    assert 0 < estimate_spread(inside) < estimate_spread(outside)


def test_memory_beyond_what_was_measured_risks_more_at_the_same_size():
    context, edge = Context(600.0, 0.0), Edge(1.0, 0.05, 0.005, 1.0)
    guess = need(at_batch([SMALL, LARGE], 900), context, under_mps=False)
    sure = need(measured(900), context, under_mps=False)
    assert guess.held_mib == pytest.approx(sure.held_mib, rel=0.01)
    assert edge.risk([guess], 1.03 * sure.held_mib) > edge.risk([sure], 1.03 * sure.held_mib)
    assert guess.interval_mib(0.005).p95 > sure.interval_mib(0.005).p95


def test_memory_is_less_sure_where_weights_hid_what_an_example_takes():
    def at_most(*, fixed_mib):
        sizes = [measured(each, memory_mib=fixed_mib + 20 * each) for each in (32, 64)]
        return at_batch(sizes, 128).other_batches.memory_spread

    assert at_most(fixed_mib=10_000) > 2 * at_most(fixed_mib=100)


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([SMALL], "at batch 32 only"),
        ([SMALL, replace(LARGE, gpu="h100-sxm-80gb")], "differs"),
        ([SMALL, synthetic.profile(f"{WORK}-bs256-amp")], "differs"),
    ],
)
def test_what_cannot_tell_of_a_batch_size_is_refused(others, why):
    with pytest.raises(InvalidInput, match=why):
        at_batch(others, 128)


def test_far_beyond_what_was_measured_nothing_is_said():
    with pytest.raises(InvalidInput, match=f"{WORK}: batch 2000 is more than 4 times beyond"):
        at_batch([SMALL, LARGE], 2000)


def test_a_job_is_found_at_a_size_that_nobody_measured(folder):
    found = found_profile(f"{WORK}-bs128", H200, folder)
    assert found.other_batches.batches == (32, 256)
    assert found is found_profile(f"{WORK}-bs128", H200, folder)
    assert found_profile(f"{WORK}-bs256", H200, folder) == LARGE


def test_on_another_gpu_both_sizes_are_moved_first(folder):
    found = found_profile(f"{WORK}-bs128", A100, folder)
    assert (found.gpu, found.estimated_from) == (A100.key, H200.key)
    assert found.gpu_s > found_profile(f"{WORK}-bs128", H200, folder).gpu_s
    assert estimate_spread(found) > estimate_spread(found_profile(f"{WORK}-bs32", A100, folder))


def test_one_size_is_not_enough_and_the_measuring_command_is_named(folder):
    (folder / H200.key / f"{WORK}-bs256.json").unlink()
    with pytest.raises(UnknownName, match=f"advisor profile {WORK}-bs128"):
        found_profile(f"{WORK}-bs128", H200, folder)


def test_an_estimate_is_read_again_as_one_and_never_replaces_a_measurement(folder, tmp_path):
    found = at_batch([SMALL, LARGE], 128)
    (path,) = write_estimates(tmp_path / "out", [found])
    assert read_profile(path) == found
    with pytest.raises(InvalidInput, match="it was measured"):
        write_estimates(folder / H200.key, [replace(found, workload=SMALL.workload)])
    assert load_profile(SMALL.name, H200.key, folder) == SMALL


def test_names_say_their_batch_sizes():
    said = batch_name("resnet50-imagenet64-bs128-amp-loader4")
    assert said == ("resnet50-imagenet64", 128, "-amp-loader4")
    assert said.at(32) == "resnet50-imagenet64-bs32-amp-loader4"
    assert said.work == "resnet50-imagenet64-amp-loader4"
    assert batch_name("my-job") is None
    assert batch_name("my-bs08") is None
