"""All GPUs of a question stand on one host: no GPU is slower than an older one for its CPU."""

import itertools
import operator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.files.reading import profile_files
from advisor.files.writing import record_line
from advisor.hardware.gpus import catalogue, gpu
from advisor.hardware.machine import HostCheck
from advisor.hardware.partition import rates_of
from advisor.learn.fit import with_own_paces
from advisor.learn.observations import MeasuredGpu
from advisor.prediction.caching_predictor import date_of
from advisor.prediction.find_profile import find_profile
from advisor.prediction.model import OwnPace, load_model
from advisor.prediction.other_gpu import on_gpu, on_host_of
from advisor.report.forecast import with_estimates_named
from advisor.sharing import parse_sharing
from advisor.workload.store import model_path, read_profile
from tests import synthetic
from tests.prediction.made_up_runs import watched

SHIPPED = Path(__file__).parents[2] / "profiles"
NAMES = sorted(
    {path.stem for key in ("h200-141gb", "h100-sxm-80gb") for path in profile_files(SHIPPED / key)}
)
RESNET = "resnet50-imagenet64-bs128"
A100, H100, H200 = gpu("a100-80gb"), gpu("h100-sxm-80gb"), gpu("h200-141gb")


def numbers(card):
    """All that makes a GPU fast, and its generation."""
    rates = rates_of(card)
    of_rates = rates.clock_mhz, rates.fp32_tflops, rates.tf32_tflops or 0.0, rates.fp16_tflops
    capability = float(card.compute_capability)
    return capability, card.sms, card.threads_per_sm, rates.bandwidth_gb_s, *of_rates


FASTER_IN_ALL = [
    (old, new)
    for old in catalogue().values()
    for new in catalogue().values()
    if new != old and all(map(operator.ge, numbers(new), numbers(old)))
]
# Of higher clock and fewer SMs, which only jobs of the smallest kernels could like.
PAIRS = [*FASTER_IN_ALL, (gpu("v100-32gb"), gpu("a100-40gb")), (gpu("a30-24gb"), gpu("a100-40gb"))]


def test_the_order_of_gpus_is_that_of_their_generations():
    keys = {(old.key, new.key) for old, new in FASTER_IN_ALL}
    line = ["a100-40gb", "a100-80gb", "h100-pcie-80gb", "h100-sxm-80gb", "h200-141gb"]
    assert keys.issuperset(itertools.pairwise(line))


@given(st.sampled_from(NAMES), st.sampled_from(PAIRS))
def test_a_newer_gpu_of_one_kind_never_takes_longer_for_a_shipped_job(name, pair):
    older, newer = (find_profile(name, each) for each in pair)
    assert newer.step_s <= older.step_s * (1 + 1e-9)
    assert newer.paced_s(newer.step_s) <= older.paced_s(older.step_s) * (1 + 1e-9)
    assert newer.host_s == pytest.approx(older.host_s)


WORKS = ["cait_xxs24_224-imagenet", "resnet50-imagenet64", "transformer-toy"]


@given(st.sampled_from(WORKS), st.integers(16, 512), st.sampled_from(PAIRS))
def test_no_gpu_overtakes_a_newer_one_at_a_batch_that_was_not_measured(work, batch, pair):
    older, newer = (find_profile(f"{work}-bs{batch}", each) for each in pair)
    assert newer.step_s <= older.step_s * (1 + 1e-9)


KINDS = st.sampled_from(["trace", "counters", "numbers", "duration"])


def described(kind, host_s, gpu_s):
    """A job on an A100 as users know it: profiled, counted, watched, or its duration alone."""
    whole = on_gpu(synthetic.profile(host_s=host_s, gpu_s=gpu_s), A100)
    if kind in ("trace", "counters"):
        return replace(whole, estimated_from=None, trace=whole.trace if kind == "trace" else None)
    busy = max(0.01, whole.busy_share)
    if kind == "numbers":
        return watched(A100, busy, step_s=whole.step_s)
    return watched(A100, busy, step_s=None, duration_s=600)


@given(KINDS, st.floats(1e-4, 0.1), st.floats(1e-4, 0.1), st.sampled_from(FASTER_IN_ALL))
def test_a_newer_gpu_never_takes_longer_however_a_job_is_described(kind, host_s, gpu_s, pair):
    job = described(kind, host_s, gpu_s)
    older, newer = (on_gpu(job, each) for each in pair)
    assert newer.step_s <= older.step_s * (1 + 1e-9)


@given(st.floats(1e-3, 0.1), st.floats(1e-3, 0.1), st.floats(0.3, 3.0), st.floats(0.3, 3.0))
def test_on_the_host_of_another_gpu_only_the_kernels_differ(host_s, gpu_s, slower, longer):
    there = replace(synthetic.profile(host_s=host_s, gpu_s=gpu_s), host_check_s=0.002)
    job = replace(synthetic.profile(host_s=host_s * slower, gpu_s=gpu_s * longer), gpu=H100.key)
    moved = on_host_of(job, there)
    assert (moved.host_s, moved.gpu_s, moved.host_check_s) == (host_s, job.gpu_s, 0.002)
    assert moved.step_s == pytest.approx(max(host_s, job.gpu_s))
    assert (moved.host_gpu, moved.trace.duration_us) == ("h200-141gb", job.trace.duration_us)
    assert all(each.step_s >= moved.step_s * (1 - 1e-9) for each in moved.mps.limited)
    assert on_host_of(moved, there) is moved


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write profiles of one's own, measured on a host of that many times the time."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def write(card, times):
        folder = tmp_path / "advisor" / "profiles" / card.key
        folder.mkdir(parents=True)
        job = synthetic.profile(host_s=0.02 * times, gpu_s=0.004)
        job = replace(job, gpu=card.key, host_check_s=0.001 * times)
        (folder / f"{RESNET}.json").write_text(record_line(job))
        return job

    return write


def test_a_profile_of_ones_own_stays_as_measured_and_other_gpus_stand_on_its_host(own):
    job = own(A100, 2)
    assert find_profile(RESNET, A100) == job
    for card in (H100, H200, gpu("h100-pcie-80gb")):
        estimate = find_profile(RESNET, card)
        assert (estimate.host_s, estimate.host_gpu) == (job.host_s, A100.key)


def test_all_gpus_of_one_question_stand_on_the_host_of_the_first(own):
    own(A100, 1)
    slow = own(H100, 3)
    advisor = Advisor(A100.key)
    (job,) = advisor.jobs([RESNET])
    there = advisor.on_other(H100.key)
    assert there.find_profile(RESNET) == slow
    moved = advisor.profile_on(there, job.profile)
    assert (moved.host_s, moved.step_s, moved.host_gpu) == (0.02, pytest.approx(0.02), A100.key)


def test_a_host_that_own_runs_showed_to_be_slow_is_that_of_all_gpus_of_the_question():
    advisor = Advisor(A100.key)
    (job,), there = advisor.jobs([RESNET]), advisor.on_other(H100.key)
    pace = OwnPace(slowdown=3.0, runs=5, profiled=date_of(job.profile))
    vars(advisor)["model"] = replace(advisor.model, own_paces={A100.key: {RESNET: pace}})
    moved = advisor.profile_on(there, job.profile)
    assert moved.host_s == pytest.approx(3 * job.profile.host_s)


def test_a_checked_host_is_that_of_all_gpus_of_the_question():
    check = HostCheck(check_s=0.004, busy=1, cores=8, host="here", made_at=0.0)
    advisor = Advisor(A100.key, host_check=check, host_cores=8)
    (job,), there = advisor.jobs([RESNET]), advisor.on_other(H100.key)
    steps_s = [
        one.predictor.predict([profile], parse_sharing("serial")).jobs[0].step_s.p50
        for one, profile in (
            (advisor, job.profile),
            (there, advisor.profile_on(there, job.profile)),
        )
    ]
    assert there.cores == 8
    assert steps_s[1] <= steps_s[0] * (1 + 1e-9)
    assert steps_s[1] > 1.3 * job.profile.step_s


@pytest.mark.parametrize("key", ["h100-sxm-80gb", "a100-40gb"])
def test_an_answer_names_the_host_once_and_in_one_field(key):
    standing = Advisor(key).predict([RESNET], "serial").standing
    assert standing.host_from == "h200-141gb"
    notes = with_estimates_named(standing, "")
    assert notes.count("CPU time") == notes.count("h200-141gb") == 1
    assert Advisor().predict([RESNET], "serial").standing.host_from is None


def test_paces_of_own_runs_are_relative_to_the_shipped_profile_on_that_host():
    shipped, used = read_profile(SHIPPED / H100.key / f"{RESNET}.json"), find_profile(RESNET, H100)
    run = synthetic.run([replace(shipped, windows=used.windows)], "naive", slowdown=1.0)
    run = replace(run, gpu=H100.key)
    measured = MeasuredGpu(H100, {RESNET: shipped}, [run], [run])
    model = with_own_paces(load_model(model_path()), [measured])
    assert model.own_paces[H100.key][RESNET].slowdown == pytest.approx(1.0, abs=0.01)
