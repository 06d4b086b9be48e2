"""Measures what a GPU does over a window of time: counters, power and energy.

A window has two calls, and no thread runs between them: the driver counts by itself, or, on a GPU
without GPM, DCGM where it runs.

    sampler = ActivitySampler(0)
    sampler.begin()
    ...
    activity = sampler.end()
"""

from dataclasses import dataclass
from math import isfinite
from time import perf_counter, time_ns
from typing import Any

from advisor.errors import AdvisorError
from advisor.hardware.live_gpu import offers_gpm
from advisor.hardware.machine import Activity
from advisor.hardware.nvml import DcgmWatch, dcgm_watch, driver, handle_of, offered
from advisor.workload.profile import Counters

# NVML's GPM metrics: per cent of the GPU's peak, and MiB/s (nvml.h, nvmlGpmMetricId_t).
_SHARES = {
    "gract": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "sm_active": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_active": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram_active": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}
_RATES = {
    "pcie_rx_mib_s": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "pcie_tx_mib_s": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
}
_METRICS = _SHARES | _RATES

# Two GPM samples lie at least 100 ms apart (nvml.h, nvmlGpmSampleGet).
_SHORTEST_GPM_WINDOW_S = 0.1


@dataclass(frozen=True, slots=True)
class _Moment:
    """The driver's counts at one moment; `gpm` is a buffer of the driver that must be freed."""

    monotonic_s: float
    unix_us: int
    energy_mj: int | None
    gpm: Any


class ActivitySampler:
    """Measures what the whole GPU `device` does between `begin` and `end`, all tenants together.

    Not for use from several threads.

    Args:
        device: An index or UUID, as `advisor.hardware.live_gpu` explains.
    """

    def __init__(self, device: int | str) -> None:
        self._device = device
        self._begun: _Moment | None = None
        self._dcgm: DcgmWatch | None = None

    def begin(self) -> None:
        """Start a window; a window that was begun and not ended is dropped.

        Raises:
            GpuUnavailable: There is no driver, no such GPU or no permission.
        """
        self._counted_by_dcgm()
        with driver() as nvml:
            _free(nvml, self._begun)
            handle = handle_of(nvml, self._device)
            self._begun = _moment(nvml, handle)
            if self._begun.gpm is None:
                self._dcgm = dcgm_watch(str(nvml.nvmlDeviceGetUUID(handle)))

    def end(self) -> Activity:
        """Return the GPU's activity since `begin`.

        Raises:
            AdvisorError: No window was begun.
            GpuUnavailable: The GPU is gone.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            raise AdvisorError("a window of GPU activity ends only after it began. Call begin().")
        try:
            with driver() as nvml:
                handle = handle_of(nvml, self._device)
                ended = _moment(nvml, handle)
                counters = _counters(nvml, handle, begun, ended)
                _free(nvml, begun)
                _free(nvml, ended)
        finally:  # after the driver was asked: until DCGM has answered, a tenth of a second passes
            by_dcgm = self._counted_by_dcgm()
        if "gract" in by_dcgm:  # a GPU without GPM
            memory = None if counters is None else counters.memory_utilization
            counters = Counters(source="dcgm", memory_utilization=memory, **by_dcgm)
        seconds = ended.monotonic_s - begun.monotonic_s
        energy_j = None
        if begun.energy_mj is not None and ended.energy_mj is not None:
            energy_j = (ended.energy_mj - begun.energy_mj) / 1000
        power_w = None if energy_j is None else energy_j / seconds
        return Activity(counters=counters, power_w=power_w, energy_j=energy_j, seconds=seconds)

    def _counted_by_dcgm(self) -> dict[str, float]:
        """End the window of DCGM and return its counts; empty without one."""
        watch, self._dcgm = self._dcgm, None
        return {} if watch is None else watch.end()


def _moment(nvml: Any, handle: Any) -> _Moment:
    return _Moment(
        monotonic_s=perf_counter(),
        unix_us=time_ns() // 1000,
        energy_mj=offered(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle),
        gpm=_gpm_sample(nvml, handle),
    )


def _gpm_sample(nvml: Any, handle: Any) -> Any:
    if not offers_gpm(nvml, handle):
        return None
    sample = nvml.nvmlGpmSampleAlloc()
    if offered(nvml, "nvmlGpmSampleGet", handle, sample) is None:
        nvml.nvmlGpmSampleFree(sample)
        return None
    return sample


def _free(nvml: Any, moment: _Moment | None) -> None:
    if moment is not None and moment.gpm is not None:
        nvml.nvmlGpmSampleFree(moment.gpm)


def _counters(nvml: Any, handle: Any, begun: _Moment, ended: _Moment) -> Counters | None:
    if begun.gpm is None or ended.gpm is None:
        gpu, memory = (
            _mean_share(nvml, handle, begun.unix_us, kind, name)
            for kind, name in (
                (nvml.NVML_GPU_UTILIZATION_SAMPLES, "gpu"),
                (nvml.NVML_MEMORY_UTILIZATION_SAMPLES, "memory"),
            )
        )
        if gpu is None:
            return None
        return Counters(source="nvml", gract=gpu, memory_utilization=memory)
    if ended.monotonic_s - begun.monotonic_s < _SHORTEST_GPM_WINDOW_S:
        return None
    return _gpm_counters(nvml, begun.gpm, ended.gpm)


def _gpm_counters(nvml: Any, first: Any, second: Any) -> Counters | None:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(_METRICS)
    request.sample1, request.sample2 = first, second
    for slot, metric in enumerate(_METRICS.values()):
        request.metrics[slot].metricId = getattr(nvml, metric)
    nvml.nvmlGpmMetricsGet(request)
    values = {
        field: answer.value
        for field, answer in zip(_METRICS, request.metrics, strict=False)  # more slots than asked
        if answer.nvmlReturn == nvml.NVML_SUCCESS and isfinite(answer.value)
    }
    if "gract" not in values:
        return None
    # Rounding in the driver can slightly exceed 100 per cent.
    shares = {field: min(max(values[field] / 100, 0.0), 1.0) for field in _SHARES & values.keys()}
    rates = {field: values[field] for field in _RATES & values.keys()}
    return Counters(source="gpm", **shares, **rates)


def _mean_share(
    nvml: Any, handle: Any, since_unix_us: int, kind: int, latest_as: str
) -> float | None:
    """From the driver's own log of utilisation, some 100 entries of 1/6 s to 1 s each."""
    logged = offered(nvml, "nvmlDeviceGetSamples", handle, kind, since_unix_us)
    percents = [sample.sampleValue.uiVal for sample in logged[1]] if logged else []
    if not percents:  # too short for an entry: use the driver's latest figure
        latest = offered(nvml, "nvmlDeviceGetUtilizationRates", handle)
        percents = [getattr(latest, latest_as)] if latest else []
    return min(sum(percents) / len(percents) / 100, 1.0) if percents else None
