from dataclasses import replace

import pytest

from research.cross_talk import cross_talk, section
from tests import synthetic

BOUND = [synthetic.profile("resnet50-imagenet64-bs128", host_s=0.002, gpu_s=0.008)]
WAITING = [synthetic.profile("dlrm-1gb-bs128", host_s=0.02, gpu_s=0.008)]
PROFILES = {each.name: each for each in BOUND + WAITING}


def control(jobs, name, slowdown, sharing="naive"):
    run = synthetic.run(jobs, sharing, slowdown, f"cross-control-{name}")
    return replace(run, purpose="control")


def twins(jobs, name, busy, idle=1.5, sharing="naive"):
    """A control beside busy GPUs and beside idle ones, so much slower than alone."""
    ends = {"busy": busy, "idle": idle}
    return [control(jobs, f"{name}-{end}", slow, sharing) for end, slow in ends.items()]


def test_busy_neighbours_are_told_against_idle_ones_by_kind_of_mix_and_sharing():
    runs = [
        *twins(BOUND * 2, "gpu-1", 1.53), *twins(BOUND * 2, "gpu-2", 1.5, 1.53),
        *twins(WAITING * 2, "host-3", 1.65, sharing="mps"),
        *twins(BOUND + WAITING, "mixed-4", 1.5),
    ]  # fmt: skip
    gpu_bound, host_bound, mixed = cross_talk(runs, PROFILES)
    assert (gpu_bound.kind, gpu_bound.sharing, gpu_bound.n) == ("GPU-bound", "naive", 4)
    assert gpu_bound.worst == pytest.approx(0.02)
    assert gpu_bound.slowdown == pytest.approx(0, abs=1e-3)
    assert gpu_bound.floor == pytest.approx(0.02, abs=1e-3)
    assert (host_bound.kind, host_bound.sharing) == ("host-bound", "mps")
    assert host_bound.median == host_bound.slowdown == pytest.approx(0.1)
    assert host_bound.floor is None
    assert (mixed.kind, mixed.median) == ("mixed", 0)


def test_a_control_without_its_twin_or_a_profile_says_nothing():
    stranger = synthetic.profile("bert-base-finetune-bs16")
    lonely = twins(BOUND * 2, "gpu-1", 1.6)[0]
    assert cross_talk([lonely, *twins([stranger], "b-2", 1.6)], PROFILES) == ()


def test_a_run_of_another_purpose_is_no_control():
    runs = [replace(run, purpose="chosen") for run in twins(BOUND * 2, "gpu-1", 1.6)]
    assert cross_talk(runs, PROFILES) == ()


def test_the_report_has_the_section_once_there_are_controls():
    assert section(()) == ""
    text = section(cross_talk(twins(BOUND * 2, "gpu-1", 1.53), PROFILES))
    assert "| GPU-bound | naive | 2 | 2.0 % | 2.0 % | 2.0 % | - |" in text
