"""Jobs on parts of a GPU: equal parts get equal answers, smaller ones are never faster."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.files.reading import MODEL_FILE
from advisor.hardware.gpus import gpu
from advisor.hardware.partition import whole_gpu
from advisor.prediction.memory import pools
from advisor.prediction.mig_instances import on_partition, placed
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor, step_intervals
from advisor.sharing import parse_sharing
from advisor.sharing.groups import named_jobs
from advisor.workload.store import sound_profiles
from tests import synthetic
from tests.prediction.made_up_runs import PHYSICS, watched

ROOT = Path(__file__).parents[2]
H200, A100 = gpu("h200-141gb"), gpu("a100-40gb")
MODEL = load_model(ROOT / "models" / MODEL_FILE)
HOW = ("naive", "mps", "mps=50,50,50", "mps=80,40,20")


@cache
def measured():
    return tuple(sound_profiles(H200.key, ROOT / "profiles")[0].values())


def mixes(count, seed=16):
    """Random mixes of one to three measured jobs, and how they share."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        jobs = [measured()[each] for each in rng.integers(len(measured()), size=rng.integers(1, 4))]
        how = HOW[rng.integers(len(HOW))]
        yield jobs, how if "=" not in how else f"mps={','.join(how[4:].split(',')[: len(jobs)])}"


def answers(jobs, text):
    found = Predictor(H200, MODEL).predict(jobs, parse_sharing(text))
    steps = [end for job in found.jobs for end in (job.step_s.p05, job.step_s.p50, job.step_s.p95)]
    return [*steps, found.power_w.p50, found.gract, found.smact]


def numbers(jobs):
    return ",".join(str(each + 1) for each in range(len(jobs)))


def test_a_whole_instance_and_all_its_compute_slices_get_equal_answers_over_random_mixes():
    for jobs, how in mixes(12):
        whole, equal = (
            answers(jobs, f"mig={part}[{numbers(jobs)}]/{how}")
            for part in ("4g.71gb", "4g.71gb/ci=4c")
        )
        assert whole == pytest.approx(equal, rel=1e-3)


def test_a_context_is_smaller_on_a_slice_by_what_its_missing_sms_would_hold():
    job = watched(A100, 0.5, memory_mib=2915 + 44)
    # MIGPerf: MoCo's ResNet-50 at batch 8 held so much on slices of an A100.
    for name, measured_mib in (
        ("7g.40gb", 2914.9),
        ("3g.20gb", 2679.9),
        ("2g.10gb", 2624.0),
        ("1g.5gb", 2564.0),
    ):
        mix = Predictor(A100, MODEL).predict([job], parse_sharing(f"mig={name}[1]"))
        assert mix.jobs[0].memory_mib == pytest.approx(measured_mib, abs=25)


LONG_KERNELS = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.05, kernels=40)
WAITS = synthetic.profile("resnet26-cifar10-bs128", host_s=0.02, gpu_s=0.004, blocks=60)
ANY_JOB = st.sampled_from([LONG_KERNELS, WAITS, replace(LONG_KERNELS, trace=None)])
SMS = st.integers(1, 66).map(lambda pairs: 2 * pairs)
EIGHTHS = st.integers(1, 8).map(lambda slices: slices / 8)
WHOLE = whole_gpu(H200)


def part(sms, bandwidth_share=1.0):
    return replace(WHOLE, sms=sms, bandwidth_share=bandwidth_share)


@given(ANY_JOB, SMS, SMS, EIGHTHS, EIGHTHS)
def test_fewer_sms_or_less_bandwidth_never_make_a_step_faster(job, one, other, some, more):
    smaller = on_partition(job, part(min(one, other), min(some, more)), PHYSICS)
    larger = on_partition(job, part(max(one, other), max(some, more)), PHYSICS)
    assert smaller.step_s >= larger.step_s * (1 - 1e-9) >= job.step_s * (1 - 1e-8)
    assert smaller.gpu_s >= larger.gpu_s * (1 - 1e-9)


@given(ANY_JOB, SMS, EIGHTHS)
def test_a_step_does_the_same_work_on_any_part(job, sms, bandwidth_share):
    there = on_partition(job, part(sms, bandwidth_share), PHYSICS)
    if there.counters.dram_active < 1:
        moved_s = there.counters.dram_active * there.step_s * bandwidth_share
        assert moved_s == pytest.approx(job.counters.dram_active * job.step_s)
    if there.counters.sm_active < 1:
        active_s = there.counters.sm_active * there.step_s * sms
        assert active_s == pytest.approx(job.counters.sm_active * job.step_s * H200.sms)


BUSY = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.05, kernels=40)
SMALL = synthetic.profile("bert-base-finetune-bs16", host_s=0.01, gpu_s=0.008, blocks=20)
IDLE = synthetic.profile("resnet26-cifar10-bs128", host_s=0.02, gpu_s=0.001, blocks=20)
JOBS = st.sampled_from([BUSY, SMALL, IDLE])


def steps(profiles, text):
    return [each.p50 for each in step_intervals(profiles, parse_sharing(text), H200, MODEL)]


@given(JOBS, JOBS, st.sampled_from(["naive", "mps", "mps=50,50", "mps=100,30"]))
def test_no_job_gains_from_a_mate_on_its_instance(one, other, how):
    together = steps([one, other], f"mig=3g.71gb[1,2]/{how}")
    for job, step_s in zip([one, other], together, strict=True):
        (alone_s,) = steps([job], "mig=3g.71gb[1]")
        assert step_s >= alone_s * 0.999
        assert alone_s >= job.step_s


@given(st.lists(JOBS, min_size=3, max_size=3), st.sampled_from(["naive", "mps"]))
def test_jobs_on_other_instances_change_nothing(profiles, how):
    both = steps(profiles, f"mig=4g.71gb[1]+3g.71gb[2,3]/{how}")
    assert both[0] == steps(profiles[:1], "mig=4g.71gb[1]")[0]
    assert both[1:] == steps(profiles[1:], f"mig=3g.71gb[1,2]/{how}")


def test_compute_instances_share_bandwidth_and_not_sms():
    modest, greedy = (
        replace(BUSY, counters=replace(BUSY.counters, dram_active=share)) for share in (0.05, 0.9)
    )
    text = "mig=7g.141gb/ci=3c[1]+4c[2]"
    alone = [steps([modest], "mig=7g.141gb/ci=3c[1]"), steps([modest], "mig=7g.141gb/ci=4c[1]")]
    shared = steps([modest, modest], text)
    for (alone_s,), shared_s in zip(alone, shared, strict=True):
        assert alone_s < shared_s < 1.1 * alone_s
    assert steps([IDLE, IDLE], text) == pytest.approx([IDLE.step_s] * 2, rel=0.01)
    # Each alone would move nine tenths of what the GPU can: together they cannot.
    moved = sum(0.9 * greedy.step_s / step_s for step_s in steps([greedy, greedy], text))
    assert moved <= 1.0001


def test_ranges_are_wider_on_smaller_instances_and_widest_for_mates():
    texts = ["mig=7g.141gb[1]", "mig=4g.71gb[1]", "mig=2g.35gb[1]", "mig=1g.18gb[1]"]
    wide = [step_intervals([BUSY], parse_sharing(text), H200, MODEL)[0] for text in texts]
    for larger, smaller in pairwise(each.p95 / each.p05 for each in wide):
        assert larger < smaller
    pair = step_intervals([BUSY, BUSY], parse_sharing("mig=4g.71gb[1,2]/mps"), H200, MODEL)[0]
    assert pair.p95 / pair.p05 > wide[1].p95 / wide[1].p05


def test_mates_take_their_memory_from_one_instance():
    sharing = parse_sharing("mig=4g.71gb[2]+3g.71gb[1,3]/mps")
    alone, shared = pools(H200, sharing, 3, 66)
    sizes = {each.name: each.memory_mib for each in H200.mig}
    assert (alone.jobs, alone.capacity_mib) == ((1,), sizes["4g.71gb"])
    assert (shared.jobs, shared.capacity_mib) == ((0, 2), sizes["3g.71gb"] - 66)


@pytest.mark.parametrize(
    "text",
    [
        "mig=4g.71gb[1]+4g.71gb[2]",
        "mig=7g.141gb[1]+1g.18gb[2]",
        "mig=7g.141gb/ci=4c[1]+4c[2]",
        "mig=3g.71gb/ci=2c[1]+2c[2]",
    ],
)
def test_what_the_gpu_cannot_hold_is_refused(text):
    with pytest.raises(NothingFits):
        placed(parse_sharing(text), H200)


@pytest.mark.parametrize(
    ("on_instance", "whole"),
    [
        ("mig=7g.141gb[1]", "naive"),
        ("mig=7g.141gb[2,1]/naive", "naive"),
        ("mig=7g.141gb[1,2]/mps", "mps"),
        ("mig=7g.141gb[2,1]/mps=30,70", "mps=70,30"),
        ("mig=7g.141gb/ci=7c[1,2]/mps", "mps"),
    ],
)
def test_an_instance_that_is_the_whole_gpu_is_answered_as_the_whole_gpu(on_instance, whole):
    sharing = parse_sharing(on_instance)
    jobs = [BUSY, SMALL][: len(named_jobs(sharing))]
    found = Predictor(H200, MODEL).predict(jobs, sharing)
    expected = Predictor(H200, MODEL).predict(jobs, parse_sharing(whole))
    assert [job.step_s for job in found.jobs] == [job.step_s for job in expected.jobs]
    assert (found.power_w, found.smact) == (expected.power_w, expected.smact)
    assert found.memory_capacity_mib <= expected.memory_capacity_mib
    assert not found.confirmed_on_hardware, "nobody ran it under MIG"
