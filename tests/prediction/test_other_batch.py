"""What the laws of batch sizes allow between and beyond the sizes that were measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, UnknownName
from advisor.files.writing import record_line
from advisor.hardware.gpus import gpu
from advisor.prediction.find_profile import find_profile
from advisor.prediction.memory import Context, Edge, need
from advisor.prediction.other_batch import at_batch, band, memory_at, step_at
from advisor.prediction.predictor import estimate_spread
from advisor.workload.spec import batch_name
from advisor.workload.store import estimated_profiles
from tests import synthetic

SIZES = st.integers(1, 4096)
PARTS = st.floats(0.0, 10.0)


@st.composite
def lawful(draw):
    """A step that has a fixed part, a part an example, and a floor where the GPU is not full."""
    fixed, each, floor = draw(PARTS), draw(st.floats(0.001, 10.0)), draw(PARTS)
    known = draw(st.sets(SIZES, min_size=1, max_size=5))

    def takes(batch):
        return fixed + max(floor, each * batch)

    return takes, {size: takes(size) for size in known}


@given(lawful(), SIZES)
def test_what_obeys_the_laws_and_what_is_expected_lie_in_the_band(step, batch):
    takes, known = step
    (low, high), found = band(known, batch), step_at(known, batch)
    for value in (takes(batch), found.middle):
        assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
    if batch in known:
        assert (found.middle, found.spread) == (known[batch], 0.0)
    else:
        assert found.spread > 0


@given(lawful(), SIZES, SIZES)
def test_another_measurement_never_widens_the_band(step, batch, also):
    takes, known = step
    (low, high), (lower, higher) = band(known | {also: takes(also)}, batch), band(known, batch)
    assert low >= lower * (1 - 1e-9)
    assert high <= higher * (1 + 1e-9)


@given(st.floats(0.1, 1e4), st.floats(0.1, 100.0), st.sets(SIZES, min_size=2, max_size=4), SIZES)
def test_memory_that_grows_in_proportion_is_found_anywhere(fixed, each, sizes, batch):
    known = {size: fixed + each * size for size in sizes}
    assert memory_at(known, batch).middle == pytest.approx(fixed + each * batch)


@given(st.dictionaries(SIZES, st.floats(0.01, 100.0), min_size=2, max_size=5), SIZES)
def test_measurements_that_break_the_laws_still_give_a_number(known, batch):
    found = step_at(known, batch)
    assert 0 < found.middle < float("inf")
    assert found.spread < 30


H200, A100 = gpu("h200-141gb"), gpu("a100-40gb")
WORK = "resnet50-imagenet64"


def measured(batch, **numbers):
    """ResNet-50 at `batch`: 10 ms on the host, 2 ms and 0.1 ms an example on the GPU."""
    taken = {"host_s": 0.01, "gpu_s": 0.002 + 1e-4 * batch, "memory_mib": 1000 + 20 * batch}
    return synthetic.profile(f"{WORK}-bs{batch}", blocks=10 * batch, **(taken | numbers))


SMALL, LARGE = measured(32), measured(256)


@pytest.mark.parametrize(("batch", "near"), [(8, True), (7, False), (1024, True), (1025, False)])
def test_nothing_is_estimated_far_beyond_the_sizes_that_were_measured(batch, near):
    if near:
        assert at_batch([SMALL, LARGE], batch).workload.batch == batch
    else:
        with pytest.raises(InvalidInput, match=r"more than 4 times beyond .* Measure it nearer"):
            at_batch([SMALL, LARGE], batch)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    for each in (SMALL, LARGE):
        path = tmp_path / each.gpu / f"{each.name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(record_line(each))
    return tmp_path


def test_the_host_is_as_slow_at_any_size_and_the_gpu_as_its_examples_ask():
    found = at_batch([SMALL, LARGE], 128)
    assert found.name == f"{WORK}-bs128"
    assert found.host_s == pytest.approx(0.01)
    assert found.gpu_s == pytest.approx(0.002 + 1e-4 * 128, rel=0.1)
    assert found.step_s == pytest.approx(max(found.host_s, found.gpu_s))
    assert found.memory.allocated_mib == pytest.approx(measured(128).memory.allocated_mib)
    assert found.memory.device_mib == pytest.approx(measured(128).memory.device_mib)


def test_kernels_have_blocks_in_proportion_and_take_what_the_gpu_does():
    found = at_batch([SMALL, LARGE], 128)
    assert set(found.trace.blocks) == {10 * 128}
    assert 1e-6 * sum(found.trace.duration_us) == pytest.approx(found.gpu_s)
    assert max(found.trace.launch_us) <= 1e6 * found.host_s


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


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([SMALL], "only at batch 32"),
        ([SMALL, replace(LARGE, gpu="h100-sxm-80gb")], "differs"),
        ([SMALL, synthetic.profile(f"{WORK}-bs256-amp")], "differs"),
    ],
)
def test_what_cannot_tell_of_a_batch_size_is_refused(others, why):
    with pytest.raises(InvalidInput, match=why):
        at_batch(others, 128)


def test_a_job_is_found_at_a_size_that_nobody_measured(folder):
    found = find_profile(f"{WORK}-bs128", H200, folder)
    assert found.other_batches.batches == (32, 256)
    assert found is find_profile(f"{WORK}-bs128", H200, folder)
    assert find_profile(f"{WORK}-bs256", H200, folder) == LARGE


def test_on_another_gpu_both_sizes_are_moved_first(folder):
    found = find_profile(f"{WORK}-bs128", A100, folder)
    assert (found.gpu, found.estimated_from) == (A100.key, H200.key)
    assert found.gpu_s > find_profile(f"{WORK}-bs128", H200, folder).gpu_s
    assert estimate_spread(found) > estimate_spread(find_profile(f"{WORK}-bs32", A100, folder))


def test_one_size_is_not_enough_and_the_measuring_command_is_named(folder):
    (folder / H200.key / f"{WORK}-bs256.json").unlink()
    with pytest.raises(UnknownName, match=f"advisor profile {WORK}-bs128"):
        find_profile(f"{WORK}-bs128", H200, folder)


def test_names_say_their_batch_sizes():
    said = batch_name("resnet50-imagenet64-bs128-amp-loader4")
    assert said == ("resnet50-imagenet64", 128, "-amp-loader4")
    assert said.at(32) == "resnet50-imagenet64-bs32-amp-loader4"
    assert said.work == "resnet50-imagenet64-amp-loader4"
    assert batch_name("my-job") is None
    assert batch_name("my-bs08") is None
