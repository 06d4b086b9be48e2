"""Windows of a GPU's activity: shares, power and energy, with whatever the driver has."""

import pynvml
import pytest

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.counters import ActivitySampler
from tests.hardware.nvml import FakeGpu, FakeLibrary

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


def test_a_second_window_does_not_remember_the_first(install):
    library = install(FakeLibrary(FakeGpu()))
    sampler = ActivitySampler(0)
    for power_w, share in ((400.0, 80.0), (100.0, 10.0)):
        sampler.begin()
        library.work(1.0, power_w, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: share})
        activity = sampler.end()
    assert activity.counters.gract == pytest.approx(0.10)
    assert activity.power_w == pytest.approx(100, abs=0.01)


def test_no_buffer_of_the_driver_is_left_behind(install):
    library = install(FakeLibrary(FakeGpu()))
    window(library, 1.0)
    sampler = ActivitySampler(0)
    sampler.begin()
    sampler.begin()  # forgets the window that never ended
    library.work(1.0, 100.0, BUSY)
    sampler.end()
    assert library.allocated == 5
    assert library.samples == {}


def test_a_window_too_short_for_gpm_has_power_but_no_counters(install):
    activity = window(install(FakeLibrary(FakeGpu())), 0.05)
    assert activity.counters is None
    assert activity.power_w == pytest.approx(400, abs=0.1)


def test_a_metric_that_the_gpu_lacks_is_none_and_never_zero(install):
    metrics = {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 50.0}
    counters = window(install(FakeLibrary(FakeGpu())), 1.0, metrics=metrics).counters
    assert counters.gract == pytest.approx(0.5)
    assert (counters.sm_active, counters.dram_active, counters.pcie_rx_mib_s) == (None, None, None)


def test_a_share_a_hair_above_one_is_one(install):
    metrics = {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 100.4}
    assert window(install(FakeLibrary(FakeGpu())), 1.0, metrics=metrics).counters.gract == 1


def test_a_metric_that_is_no_number_is_none(install):
    metrics = BUSY | {pynvml.NVML_GPM_METRIC_SM_UTIL: float("nan")}
    assert window(install(FakeLibrary(FakeGpu())), 1.0, metrics=metrics).counters.sm_active is None


def test_without_gpm_the_driver_s_log_of_the_window_gives_the_busy_share(install):
    library = install(FakeLibrary(FakeGpu(gpm=False)))
    library.work(3.0, 100.0, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 5.0})  # before the window
    counters = window(library, 2.0).counters
    assert (counters.source, counters.sm_active) == ("nvml", None)
    assert counters.gract == pytest.approx(0.80)
    assert counters.memory_utilization is not None


def test_without_gpm_a_short_window_takes_the_driver_s_latest_figure(install):
    counters = window(install(FakeLibrary(FakeGpu(gpm=False))), 0.05).counters
    assert (counters.source, counters.gract) == ("nvml", 0.37)
    assert counters.memory_utilization == 0.05


def test_a_gpu_that_tells_nothing_has_no_counters_and_no_power(install):
    silent = dict.fromkeys(
        (
            "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTotalEnergyConsumption", "nvmlGpmQueryDeviceSupport",
        ),
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    )  # fmt: skip
    activity = window(install(FakeLibrary(FakeGpu(refuses=silent))), 1.0)
    assert (activity.counters, activity.power_w, activity.energy_j) == (None, None, None)
    assert activity.seconds == pytest.approx(1)


def test_a_user_who_may_not_sample_gpm_gets_the_busy_share(install):
    denied = {"nvmlGpmSampleGet": pynvml.NVML_ERROR_NO_PERMISSION}
    library = install(FakeLibrary(FakeGpu(refuses=denied)))
    assert window(library, 1.0).counters.source == "nvml"
    assert library.samples == {}


def test_a_window_that_never_began_cannot_end(install):
    install(FakeLibrary(FakeGpu()))
    with pytest.raises(AdvisorError, match="only after it began"):
        ActivitySampler(0).end()


def test_a_gpu_lost_in_the_middle_of_a_window_is_reported(install):
    gpu = FakeGpu()
    library = install(FakeLibrary(gpu))
    sampler = ActivitySampler(0)
    sampler.begin()
    library.work(1.0, 400.0, BUSY)
    gpu.refuses["nvmlDeviceGetTotalEnergyConsumption"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(GpuUnavailable, match="fallen off"):
        sampler.end()
