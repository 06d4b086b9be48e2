import io
from dataclasses import replace

from rich.console import Console

from advisor.hardware.catalogue import catalogue
from advisor.hardware.gpu_state import BrokenGpu, GpuProcess, LiveGpu
from advisor.hardware.mps import MpsProcess
from advisor.report.listing_text import (
    gpus_document,
    gpus_table,
    live_lines,
    profiles_table,
    workloads_table,
)
from advisor.workload.named_workloads import zoo
from tests import synthetic

LIVE = LiveGpu(
    index=0, uuid="GPU-1", product="NVIDIA H200", catalogue_key="h200-141gb",
    memory_total_mib=143771, memory_used_mib=1200, driver="580.1", mig_enabled=False,
    mig_pending=True, compute_mode="default", mps=(), counters="gpm",
    processes=(GpuProcess(42, None), GpuProcess(43, 1000)), power_w=75, power_limit_w=None,
    sm_clock_mhz=345, memory_clock_mhz=3201, gpu_utilization=0.37,
)  # fmt: skip


def printed(table, columns=80):
    console = Console(file=io.StringIO(), width=columns)
    console.print(table)
    return console.file.getvalue()


def test_every_gpu_of_the_catalogue_is_listed_in_80_columns():
    text = printed(gpus_table(catalogue().values(), ["h200-141gb"]))
    assert max(map(len, text.splitlines())) <= 80
    assert all(key in text for key in catalogue())
    (row,) = [line for line in text.splitlines() if line.startswith("h200-141gb")]
    assert row.split()[-1] == "yes"


def test_the_gpu_at_hand_says_its_modes_and_never_a_zero_for_unknown():
    text = "\n".join(live_lines([LIVE]))
    assert "MIG off (on after the next reset)" in text
    assert "no daemon runs" in text
    assert "42 (unknown), 43 (1,000 MiB)" in text
    assert "75 W of unknown" in text
    assert "a kernel runs 37% of the time" in text
    dark = "\n".join(live_lines([replace(LIVE, gpu_utilization=None)]))
    assert "busy       unknown" in dark


def test_a_broken_gpu_does_not_hide_the_others():
    text = "\n".join(live_lines([BrokenGpu(1, "fell off the bus"), LIVE]))
    assert "GPU 1 does not answer: fell off the bus" in text
    assert "GPU 0: NVIDIA H200" in text


def test_an_mps_daemon_is_named_with_its_owner():
    served = replace(LIVE, mps=(MpsProcess(7, "control", "ann", None),))
    assert "control 7 of ann" in "\n".join(live_lines([served]))


def test_the_document_of_gpus_says_why_none_was_looked_at():
    document = gpus_document(catalogue().values(), ["h200-141gb"], [], "no driver")
    assert (document["schema"], document["at_hand"], document["problem"]) == (1, [], "no driver")


def test_workloads_and_profiles_are_listed_by_name():
    assert "resnet50-imagenet64-bs128" in printed(workloads_table(zoo()))
    profile = synthetic.profile()
    assert profile.name in printed(profiles_table({profile.name: profile}))


def test_a_profile_is_one_line_of_80_columns_unless_details_are_asked_for():
    name = "vit_small_patch16_224-imagenet64-bs128-amp-loader4"
    profile = synthetic.profile(name, memory_mib=100_000)
    short, whole = (
        printed(profiles_table({name: profile}, details=each)) for each in (False, True)
    )
    assert [line.split()[0] for line in short.splitlines()] == ["profile", name]
    assert "100,000 MiB" in short
    assert "fastest" not in short
    assert "fastest" in whole
    estimated = replace(profile, estimated_from="h100-sxm-80gb")
    assert "estimated from h100-sxm-80gb" in printed(profiles_table({name: estimated}), 200)
