"""Windows of a GPU's activity: shares, power and energy, from NVML or from a `dcgmi`."""

import pynvml
import pytest

from advisor.errors import GpuUnavailable
from advisor.hardware import nvml as dcgm
from advisor.hardware.nvml import ActivitySampler
from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.waiting import until

BUSY = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 80.0,
    pynvml.NVML_GPM_METRIC_SM_UTIL: 60.0,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: 25.0,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 12.5,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 40.0,
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: 900.0,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: 30.0,
}


def window(library, seconds, power_w=400.0, metrics=BUSY):
    sampler = ActivitySampler(0)
    sampler.begin()
    library.work(seconds, power_w, metrics)
    return sampler.end()


def test_a_busy_window_has_shares_power_and_energy(install):
    activity = window(install(FakeLibrary(FakeGpu())), 2.0)
    assert activity.seconds == pytest.approx(2)
    assert activity.energy_j == pytest.approx(800, abs=0.01)
    assert activity.power_w == pytest.approx(400, abs=0.01)
    counters = activity.counters
    assert counters.source == "gpm"
    assert counters.gract == pytest.approx(0.80)
    assert counters.sm_active == pytest.approx(0.60)
    assert counters.sm_occupancy == pytest.approx(0.25)
    assert counters.tensor_active == pytest.approx(0.125)
    assert counters.dram_active == pytest.approx(0.40)
    assert (counters.pcie_rx_mib_s, counters.pcie_tx_mib_s) == pytest.approx((900, 30))


def test_a_second_window_does_not_remember_the_first_and_the_driver_has_no_buffer_left(install):
    library = install(FakeLibrary(FakeGpu()))
    sampler = ActivitySampler(0)
    sampler.begin()  # forgotten: it never ends
    for power_w, share in ((400.0, 80.0), (100.0, 10.0)):
        sampler.begin()
        library.work(1.0, power_w, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: share})
        activity = sampler.end()
    assert activity.counters.gract == pytest.approx(0.10)
    assert activity.power_w == pytest.approx(100, abs=0.01)
    assert (library.allocated, library.samples) == (5, {})


def test_a_window_too_short_for_gpm_or_a_metric_that_the_gpu_lacks_is_none_and_never_zero(install):
    activity = window(install(FakeLibrary(FakeGpu())), 0.05)
    assert (activity.counters, activity.power_w) == (None, pytest.approx(400, abs=0.1))
    metrics = {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 50.0}
    counters = window(install(FakeLibrary(FakeGpu())), 1.0, metrics=metrics).counters
    assert counters.gract == pytest.approx(0.5)
    assert (counters.sm_active, counters.dram_active, counters.pcie_rx_mib_s) == (None, None, None)


def test_without_gpm_the_driver_s_log_of_the_window_gives_the_busy_share(install):
    library = install(FakeLibrary(FakeGpu(gpm=False)))
    library.work(3.0, 100.0, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 5.0})  # before the window
    counters = window(library, 2.0).counters
    assert (counters.source, counters.sm_active) == ("nvml", None)
    assert counters.gract == pytest.approx(0.80)
    assert counters.memory_utilization is not None


def test_a_silent_gpu_has_no_counters_and_no_power(install):
    silent = dict.fromkeys(
        (
            "nvmlDeviceGetSamples",
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlGpmQueryDeviceSupport",
        ),
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    )
    activity = window(install(FakeLibrary(FakeGpu(refuses=silent))), 1.0)
    assert (activity.counters, activity.power_w, activity.energy_j) == (None, None, None)
    assert activity.seconds == pytest.approx(1)


def test_a_user_who_may_not_sample_gpm_gets_the_busy_share(install):
    denied = {"nvmlGpmSampleGet": pynvml.NVML_ERROR_NO_PERMISSION}
    library = install(FakeLibrary(FakeGpu(refuses=denied)))
    assert window(library, 1.0).counters.source == "nvml"
    assert library.samples == {}


def test_a_gpu_lost_in_the_middle_of_a_window_is_reported(install):
    gpu = FakeGpu()
    library = install(FakeLibrary(gpu))
    sampler = ActivitySampler(0)
    sampler.begin()
    library.work(1.0, 400.0, BUSY)
    gpu.refuses["nvmlDeviceGetTotalEnergyConsumption"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(GpuUnavailable, match="fallen off"):
        sampler.end()


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


def dcgm_window(library, words=None):
    """Two busy seconds; with `words`, they end once dcgmi has noted what it watches."""
    sampler = ActivitySampler(0)
    sampler.begin()
    if words is not None:
        until(lambda: words.exists() and "dmon" in words.read_text())
    library.work(2.0, 300.0, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 80.0})
    return sampler.end()


def test_an_a100_s_sms_and_memory_are_counted_by_dcgm(a100, dcgmi):
    words = dcgmi(HEAD + ROWS)
    activity = dcgm_window(a100, words)
    assert activity.power_w == pytest.approx(300, abs=0.01)
    found = activity.counters
    assert found.source == "dcgm"
    shares = (found.gract, found.sm_active, found.sm_occupancy, found.tensor_active)
    assert shares == pytest.approx((0.85, 0.55, 0.225, 0.1))
    assert found.dram_active == pytest.approx(0.35)
    assert found.memory_utilization is not None, "only NVML has it"
    assert words.read_text().splitlines() == [
        "discovery --list",
        "dmon -e 1001,1002,1003,1004,1005 -i 3 -d 100",
    ]


@pytest.mark.parametrize(
    ("watched", "listed"),
    [
        (FAILED, LISTED),
        ("", LISTED),
        (HEAD + "GPU 3  0.9  0.8  0.2  0.1  0.4\n", LISTED),
        (HEAD + ROWS, "Error: unable to establish a connection to the specified host: localhost\n"),
        (HEAD + ROWS, LISTED.replace("GPU-a100", "GPU-elsewhere")),
    ],
    ids=["module not loaded", "nothing printed", "too short", "no engine", "not its GPU"],
)
def test_where_dcgm_counts_nothing_nvml_s_utilisation_stays(a100, dcgmi, watched, listed):
    dcgmi(watched, listed)
    found = dcgm_window(a100).counters
    assert (found.source, found.sm_active) == ("nvml", None)
    assert found.gract == pytest.approx(0.8)


def test_a_gpu_with_gpm_does_not_ask_dcgm(install, dcgmi):
    words = dcgmi(HEAD + ROWS)
    assert dcgm_window(install(FakeLibrary(FakeGpu(uuid="GPU-a100")))).counters.source == "gpm"
    assert not words.exists()
