"""Jobs on MIG instances: laws, since no MIG hardware was measured."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import partition_of, whole_gpu
from advisor.prediction.memory import pools
from advisor.prediction.mig_instances import as_whole_gpu, placed
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import SurrogateAnswers, Tenancy
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.sharing.traversal import named_jobs
from advisor.timeline.paces import Paces
from advisor.timeline.simulate import Fleet, simulated
from advisor.workload.files import MODEL_FILE
from advisor.workload.job import Arrival, Job
from tests import synthetic

H200 = gpu("h200-141gb")
MODELS = Path(__file__).parents[2] / "models"
MODEL = load_model(MODELS / MODEL_FILE)
PREDICTOR = Predictor(H200, MODEL)
BUSY = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.05, kernels=40)
SMALL = synthetic.profile("bert-base-finetune-bs16", host_s=0.01, gpu_s=0.008, blocks=20)
IDLE = synthetic.profile("resnet26-cifar10-bs128", host_s=0.02, gpu_s=0.001, blocks=20)
JOBS = st.sampled_from([BUSY, SMALL, IDLE])


def hungry(profile, dram_active):
    """`profile`, moving so much of what the GPU can move."""
    return replace(profile, counters=replace(profile.counters, dram_active=dram_active))


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


@given(JOBS, JOBS, st.sampled_from(["naive", "mps"]))
def test_the_order_in_which_jobs_are_named_says_little(one, other, how):
    forth = steps([one, other], f"mig=3g.71gb[1,2]/{how}")
    back = steps([other, one], f"mig=3g.71gb[2,1]/{how}")
    assert forth == pytest.approx(back[::-1])


def test_two_busy_jobs_that_take_turns_on_an_instance_need_twice_as_long():
    (alone_s,) = steps([BUSY], "mig=3g.71gb[1]")
    first, second = steps([BUSY, BUSY], "mig=3g.71gb[1,2]/naive")
    assert first == second
    assert 1.9 * alone_s < first < 2.4 * alone_s


def test_jobs_that_wait_for_their_host_share_an_instance_for_nothing():
    assert steps([IDLE, IDLE], "mig=1g.18gb[1,2]/mps") == pytest.approx([IDLE.step_s] * 2, rel=0.02)


def test_compute_instances_share_bandwidth_and_not_sms():
    modest, greedy = hungry(BUSY, 0.05), hungry(BUSY, 0.9)
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
    mates = step_intervals([BUSY, BUSY], parse_sharing("mig=4g.71gb[1,2]/mps"), H200, MODEL)[0]
    assert mates.p95 / mates.p05 > wide[1].p95 / wide[1].p05


def test_a_host_bound_job_has_no_doubt_from_a_slice_that_it_does_not_fill():
    alone, there = (
        step_intervals([IDLE], parse_sharing(text), H200, MODEL)[0]
        for text in ("serial", "mig=4g.71gb[1]")
    )
    assert there.p95 / there.p05 == pytest.approx(alone.p95 / alone.p05, rel=1e-3)


def test_without_a_trace_the_gpu_path_is_stretched_but_less_than_by_the_sms_that_are_missing():
    dark = replace(BUSY, trace=None)
    (alone_s,) = steps([dark], "mig=4g.71gb[1]")
    assert 0.05 < alone_s < 0.05 * 132 / 64
    for how in ("naive", "mps"):
        assert min(steps([dark, dark], f"mig=4g.71gb[1,2]/{how}")) > 1.9 * alone_s


def test_mates_take_their_memory_from_one_instance():
    sharing = parse_sharing("mig=4g.71gb[2]+3g.71gb[1,3]/mps")
    alone, shared = pools(H200, sharing, 3, 66)
    sizes = {each.name: each.memory_mib for each in H200.mig}
    assert (alone.jobs, alone.capacity_mib) == ((1,), sizes["4g.71gb"])
    assert (shared.jobs, shared.capacity_mib) == ((0, 2), sizes["3g.71gb"] - 66)


@pytest.mark.parametrize(
    "text",
    [
        "mig=4g.71gb[1]+4g.71gb[2]", "mig=7g.141gb[1]+1g.18gb[2]",
        "mig=7g.141gb/ci=4c[1]+4c[2]", "mig=3g.71gb/ci=2c[1]+2c[2]",
    ],
)  # fmt: skip
def test_what_the_gpu_cannot_hold_is_refused(text):
    with pytest.raises(NothingFits):
        placed(parse_sharing(text), H200)


@pytest.mark.parametrize("text", ["mig=4g.20gb[1]", "mig=3g.71gb@1[1]", "mig=7g.141gb/ci=5c[1]"])
def test_what_the_gpu_has_in_no_layout_is_wrong_use(text):
    with pytest.raises(InvalidInput):
        placed(parse_sharing(text), H200)


def test_instances_are_given_their_places():
    found = placed(parse_sharing("mig=3g.71gb[1]+4g.71gb/ci=2c[2]+2c[3]"), H200)
    assert str(found) == "mig=3g.71gb@4[1]+4g.71gb@0/ci=2c[2]+2c[3]"


def test_a_gpu_without_mig_has_no_instances():
    with pytest.raises(NothingFits, match="has no MIG"):
        placed(parse_sharing("mig=3g.71gb[1,2]"), gpu("v100-32gb"))


@pytest.mark.parametrize(
    ("on_instance", "whole"),
    [
        ("mig=7g.141gb", "naive"),
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
    found = PREDICTOR.predict(jobs, sharing)
    expected = PREDICTOR.predict(jobs, parse_sharing(whole))
    assert [job.step_s for job in found.jobs] == [job.step_s for job in expected.jobs]
    assert (found.power_w, found.smact) == (expected.power_w, expected.smact)
    assert found.memory_capacity_mib <= expected.memory_capacity_mib
    assert not found.confirmed_on_hardware, "nobody ran it under MIG"


def test_the_largest_instance_of_an_a100_lacks_sms_so_it_is_no_whole_gpu():
    a100 = gpu("a100-40gb")
    sharing = placed(parse_sharing("mig=7g.40gb"), a100)
    assert as_whole_gpu(sharing, a100) == sharing


@pytest.mark.parametrize("how", ["naive", "mps", "mps=30,70"])
def test_the_whole_gpu_as_an_instance_gives_the_same_steps_by_the_same_arithmetic(how):
    jobs = [BUSY, SMALL]
    for text in ("mig=7g.141gb[1,2]", "mig=7g.141gb/ci=7c[1,2]"):
        assert steps(jobs, f"{text}/{how}") == steps(jobs, how)
    (alone,) = steps([BUSY], "mig=7g.141gb[1]")
    assert alone == steps([BUSY], "naive")[0]


@pytest.mark.parametrize("profile", ["1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb"])
@pytest.mark.parametrize("how", ["naive", "mps", "mps=40,60"])
def test_a_compute_instance_that_takes_the_whole_instance_is_the_instance(profile, how):
    slices = profile[0]
    instance = steps([SMALL, BUSY], f"mig={profile}[1,2]/{how}")
    assert steps([SMALL, BUSY], f"mig={profile}/ci={slices}c[1,2]/{how}") == instance


@given(JOBS)
def test_a_smaller_instance_is_never_faster(job):
    sizes = ("7g.141gb", "4g.71gb", "3g.71gb", "2g.35gb", "1g.35gb", "1g.18gb")
    found = [steps([job], f"mig={size}[1]")[0] for size in sizes]
    for larger, smaller in pairwise(found):
        assert smaller >= larger * 0.99  # replay counts whole steps only nearly


@pytest.mark.parametrize("sharing", [Naive(), Mps()])
def test_the_search_estimates_a_whole_instance_as_the_whole_gpu(sharing):
    answers = SurrogateAnswers((BUSY, SMALL, IDLE), H200, MODEL)
    sets = np.array([[0, 1, 2], [0, 0, 1], [2, -1, -1]])
    held = [whole_gpu(H200), partition_of(H200, "7g.141gb"), partition_of(H200, "7g.141gb", 7)]
    whole, *instances = answers.steps([(Tenancy(each, sharing), sets) for each in held])
    for instance in instances:
        assert instance == pytest.approx(whole, nan_ok=True)


@given(JOBS, st.sampled_from(["1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb"]))
def test_the_search_estimates_a_job_alone_on_an_instance_as_predicted(job, profile):
    answers = SurrogateAnswers((job,), H200, MODEL)
    tenancy = Tenancy(partition_of(H200, profile), Naive())
    (estimated,) = answers.steps([(tenancy, np.array([[0]]))])
    assert estimated[0, 0] == pytest.approx(steps([job], f"mig={profile}[1]")[0], rel=0.01)


@pytest.mark.parametrize("how", ["naive", "mps"])
def test_the_simulator_runs_jobs_on_the_whole_gpu_as_an_instance_as_without_mig(how):
    arrivals = [Arrival(Job(each, epochs=0.01), 0.0) for each in (BUSY, SMALL)]
    profiles = [each.job.profile for each in arrivals]
    ends_s = []
    for text in (how, f"mig=7g.141gb[1,2]/{how}"):
        paces = Paces(PREDICTOR.predict, profiles, parse_sharing(text), 2, 0.05)
        found = simulated(arrivals, paces, Fleet("h200-141gb", 1, "first-come"))
        ends_s.append(found.makespan_s.p50)
    assert ends_s[0] == pytest.approx(ends_s[1])
