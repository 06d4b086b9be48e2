"""DCGM's counters on a GPU without GPM, from a `dcgmi` that prints as DCGM 3 and 4 do."""

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware import dcgm
from advisor.hardware.counters import ActivitySampler
from advisor.hardware.live_gpu import live_gpu
from advisor.workload.measured import Counters
from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.waiting import until

LISTED = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:07:00.0                                         |
|        | Device UUID: GPU-other                                               |
+--------+----------------------------------------------------------------------+
| 3      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:0F:00.0                                         |
|        | Device UUID: GPU-a100                                                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""
HEAD = "#Entity   GRACT        SMACT        SMOCC        TENSO        DRAMA        \nID\n"
ROWS = """\
GPU 3     N/A          N/A          N/A          N/A          N/A
GPU 3     0.100        0.000        0.000        0.000        0.000
GPU 3     0.900        0.600        0.250        0.100        0.400
GPU 3     0.800        0.500        0.200        0.100        0.300
"""
FAILED = (
    HEAD + "Error setting watches. Result: -33: This request is serviced by a module of DCGM that "
    "is not currently loaded\n"
)


@pytest.fixture
def dcgmi(tmp_path, monkeypatch):
    """Puts a `dcgmi` on PATH that prints this; returns the file where it notes its words."""

    def put(watched, listed=LISTED):
        words = tmp_path / "words"
        for name, printed in (("listed", listed), ("watched", watched)):
            (tmp_path / name).write_text(printed)
        program = tmp_path / "dcgmi"
        program.write_text(
            f"#!/bin/sh\ntrap '' INT\necho \"$@\" >> '{words}'\n"
            f"[ $1 = discovery ] && exec /bin/cat '{tmp_path}/listed'\n"
            f"exec /bin/cat '{tmp_path}/watched'\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        dcgm.dcgm_number.cache_clear()
        return words

    yield put
    dcgm.dcgm_number.cache_clear()


@pytest.fixture
def a100(install):
    return install(
        FakeLibrary(FakeGpu(product="NVIDIA A100-SXM4-40GB", uuid="GPU-a100", gpm=False))
    )


def window(library, words=None):
    """A window of two busy seconds; with `words`, it ends once dcgmi has noted what it watches."""
    sampler = ActivitySampler(0)
    sampler.begin()
    if words is not None:
        until(lambda: words.exists() and "dmon" in words.read_text())
    library.work(2.0, 300.0, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 80.0})
    return sampler.end()


def test_an_a100_s_sms_and_memory_are_counted_by_dcgm(a100, dcgmi):
    words = dcgmi(HEAD + ROWS)
    activity = window(a100, words)
    assert activity.power_w == pytest.approx(300, abs=0.01)
    found = activity.counters
    assert found.source == "dcgm"
    shares = (found.gract, found.sm_active, found.sm_occupancy, found.tensor_active)
    assert shares == pytest.approx((0.85, 0.55, 0.225, 0.1))
    assert found.dram_active == pytest.approx(0.35)
    assert found.memory_utilization is not None, "which tells of slices, and only NVML has"
    assert words.read_text().splitlines() == [
        "discovery --list", "dmon -e 1001,1002,1003,1004,1005 -i 3 -d 100",
    ]  # fmt: skip


def test_headings_that_come_again_are_no_rows(a100, dcgmi):
    words = dcgmi((HEAD + ROWS) * 2)
    assert window(a100, words).counters.gract == pytest.approx((0.9 + 0.8 + 0.1 + 0.9 + 0.8) / 5)


def test_what_dcgm_does_not_count_is_none_and_never_zero(a100, dcgmi):
    words = dcgmi(HEAD + "GPU 3     0.500        0.300        N/A          0.000        N/A\n" * 4)
    found = window(a100, words).counters
    assert (found.sm_active, found.tensor_active) == (0.3, 0.0)
    assert (found.sm_occupancy, found.dram_active) == (None, None)


@pytest.mark.parametrize(
    ("watched", "listed"),
    [
        (FAILED, LISTED),
        ("", LISTED),
        (HEAD + "GPU 3  0.9  0.8  0.2  0.1  0.4\n", LISTED),
        (HEAD + ROWS, "Error: unable to establish a connection to the specified host: localhost\n"),
        (HEAD + ROWS, LISTED.replace("GPU-a100", "GPU-elsewhere")),
    ],
    ids=["module not loaded", "nothing printed", "too short a window", "no engine", "not its GPU"],
)
def test_where_dcgm_counts_nothing_nvml_s_utilisation_stays(a100, dcgmi, watched, listed):
    dcgmi(watched, listed)
    found = window(a100).counters
    assert (found.source, found.sm_active) == ("nvml", None)
    assert found.gract == pytest.approx(0.8)


def test_a_dcgmi_that_cannot_be_started_is_as_none(a100, dcgmi, tmp_path):
    dcgmi(HEAD + ROWS)
    (tmp_path / "dcgmi").write_text("no program")
    assert window(a100).counters.source == "nvml"


def test_a_gpu_with_gpm_does_not_ask_dcgm(install, dcgmi):
    words = dcgmi(HEAD + ROWS)
    assert window(install(FakeLibrary(FakeGpu(uuid="GPU-a100")))).counters.source == "gpm"
    assert not words.exists()


def test_a_window_that_is_begun_again_leaves_no_dcgmi_behind(a100, dcgmi, monkeypatch):
    dcgmi(HEAD + ROWS)
    started, really = [], dcgm.subprocess.Popen

    def noting(*words, **options):
        started.append(really(*words, **options))
        return started[-1]

    monkeypatch.setattr(dcgm.subprocess, "Popen", noting)
    sampler = ActivitySampler(0)
    sampler.begin()
    sampler.begin()
    a100.work(1.0, 300.0, {})
    sampler.end()
    assert len([each for each in started if "dmon" in each.args]) == 2
    assert all(each.returncode is not None for each in started)


@pytest.mark.usefixtures("a100")
def test_a_listing_of_gpus_says_who_counts(dcgmi, tmp_path):
    dcgmi(HEAD + ROWS)
    assert live_gpu(0).counters == "dcgm"
    (tmp_path / "dcgmi").unlink()
    dcgm.dcgm_number.cache_clear()
    assert live_gpu(0).counters == "nvml"


@given(st.text() | st.lists(st.text(alphabet="GPU 0123456789.N/A\n#ID-e")).map("".join))
def test_whatever_is_printed_every_share_is_one(printed):
    shares = dict(dcgm._means(printed))
    Counters(source="dcgm", **{"gract": 0.0} | shares)
    assert shares.keys() <= dcgm.FIELDS.keys()
    assert all(isinstance(number, int) for number in dcgm._listed(printed).values())
