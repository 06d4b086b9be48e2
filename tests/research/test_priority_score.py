"""Steps under client priorities, scored by models that every GPU taught."""

import pytest

from advisor.prediction.interval import Interval
from advisor.validate.predicted_and_measured import JobComparison
from research.priority_score import errors, on_gpu, priority_table, rows
from tests import synthetic

GPU_BOUND = synthetic.profile("resnet50-imagenet64-bs128", host_s=0.002, gpu_s=0.02)
HOST_BOUND = synthetic.profile("cnn-cifar10-bs128", host_s=0.02, gpu_s=0.002)
BOTH = {each.name: each for each in (GPU_BOUND, HOST_BOUND)}


def job(profile, predicted_s, replayed_s, inside=True):
    width = 0.5 if inside else 0.01
    return JobComparison(
        job=profile.name, family=profile.workload.family, busy_share=None, alone_s=profile.step_s,
        measured_s=0.1,
        predicted_s=Interval((1 - width) * predicted_s, predicted_s, (1 + width) * predicted_s),
        memory_mib=None, measured_memory_mib=None, baselines_s={"replay": replayed_s},
    )  # fmt: skip


def test_errors_are_shares_of_what_was_measured():
    found = errors([job(GPU_BOUND, 0.11, 0.13), job(GPU_BOUND, 0.08, None, inside=False)])
    assert found == {
        "n": 2, "mape": pytest.approx(0.15), "median": pytest.approx(0.15), "inside": 0.5,
        "replay": pytest.approx(0.3),
    }  # fmt: skip


def test_jobs_that_fill_the_gpu_and_jobs_of_slow_hosts_have_lines_of_their_own():
    jobs = [job(GPU_BOUND, 0.11, 0.1), job(HOST_BOUND, 0.1, 0.1)]
    lines = {each["jobs"]: each["mape"] for each in rows("h200-141gb", jobs, BOTH)}
    assert lines == {
        "all": pytest.approx(0.05), "GPU-bound": pytest.approx(0.1), "host-bound": pytest.approx(0)
    }  # fmt: skip
    assert [each["jobs"] for each in rows("h200-141gb", jobs[:1], BOTH)] == ["all", "GPU-bound"]


def test_runs_in_turns_or_with_limits_alone_teach_nothing_of_priorities():
    profiles = [GPU_BOUND, HOST_BOUND]
    ways = ("mps", "mps/priority=0,1", "naive", "mps=50,50")
    runs = [synthetic.run(profiles, way, run_id=f"r{at}") for at, way in enumerate(ways)]
    found = on_gpu(BOTH, runs, "h200-141gb")
    assert [run.sharing for run in found.measured.runs] == ["mps", "mps/priority=0,1"]
    assert [run.sharing for run in found.wanted] == ["mps/priority=0,1"]


def test_a_model_sees_neither_profiles_nor_runs_of_the_family_left_out():
    profiles = [GPU_BOUND, HOST_BOUND]
    runs = [synthetic.run(profiles, "mps/priority=0,1"), synthetic.run([HOST_BOUND] * 2, "mps")]
    seen = on_gpu(BOTH, runs, "h200-141gb").without(GPU_BOUND.workload.family)
    assert list(seen.profiles) == [HOST_BOUND.name]
    assert [len(run.tenants) for run in seen.runs] == [2]


def test_the_committed_score_has_both_gpus_and_their_sum():
    lines = priority_table().splitlines()[2:]
    assert {line.split(" | ")[0].strip("| ") for line in lines} == {
        "h200-141gb", "h100-sxm-80gb", "both"
    }  # fmt: skip
