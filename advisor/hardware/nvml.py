"""NVML with its errors raised as ours, and what a GPU does between two calls of a sampler.

The only importer of pynvml. No thread runs between the calls: the driver counts by itself, or, on
a GPU without GPM, DCGM where it runs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from dataclasses import dataclass
from functools import cache
from math import isfinite
from shutil import which
from signal import SIGINT
from statistics import fmean
from time import perf_counter, time_ns
from typing import Any

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.machine import Activity, Counters

# What an NVML error means for the user, and what to do next; any other is an AdvisorError.
_UNAVAILABLE = {
    "LIBRARY_NOT_FOUND": "no NVIDIA driver is installed here. Use a machine with a GPU",
    "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded. Load it, or use a machine with a GPU",
    "LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated while in use. Reboot the machine",
    "NO_PERMISSION": "the NVIDIA driver does not answer this user. Ask the administrator",
    "OPERATING_SYSTEM": (
        "the system blocks the NVIDIA driver. Give this container access to the GPU"
    ),
    "NOT_FOUND": "no such GPU. `advisor gpus` lists those of this machine",
    "GPU_NOT_FOUND": "no such GPU. `advisor gpus` lists those of this machine",
    "GPU_IS_LOST": "the GPU has fallen off its bus. Reboot the machine",
    "RESET_REQUIRED": "the GPU must be reset first. Ask the administrator",
}

# Errors that mean "not with this GPU, this driver or this user", which is not a failure.
_NOT_OFFERED = (
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "NOT_FOUND",
    "FUNCTION_NOT_FOUND",
    "NO_DATA",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
)


@contextmanager
def driver() -> Iterator[Any]:
    """Return NVML, initialised; its errors are raised as ours.

    NVML is stopped when the process ends and is never shut down here, so that handles stay valid.
    """
    if "pynvml" not in sys.modules:  # its import takes long, and needs the driver's library
        try:
            CDLL("libnvidia-ml.so.1")
        except OSError:
            raise GpuUnavailable(f"{_UNAVAILABLE['LIBRARY_NOT_FOUND']}.") from None
    remedy = "Run: pip uninstall -y pynvml; pip install 'nvidia-ml-py>=13'"
    try:
        import pynvml as nvml
    except ImportError:
        raise GpuUnavailable(f"the package nvidia-ml-py is not installed. {remedy}") from None
    if not hasattr(nvml, "nvmlGpmMetricsGet"):
        # An abandoned package of another author has the same import name.
        raise GpuUnavailable(f"the module pynvml is not the one of nvidia-ml-py. {remedy}")
    try:
        nvml.nvmlInit()
        yield nvml
    except nvml.NVMLError as error:
        for name, meaning in _UNAVAILABLE.items():
            if _is(nvml, error, name):
                raise GpuUnavailable(f"{meaning}.") from error
        raise AdvisorError(
            f"the NVIDIA driver answered {str(error)!r}. See `nvidia-smi` and dmesg."
        ) from error


def _is(nvml: Any, error: Any, *names: str) -> bool:
    return any(error.value == getattr(nvml, f"NVML_ERROR_{name}") for name in names)


def offered(nvml: Any, function: str, *arguments: Any) -> Any:
    """Return the result of NVML's `function`; None if this GPU, driver or user gets no answer."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        if not _is(nvml, error, *_NOT_OFFERED):
            raise
        return None


def offered_w(nvml: Any, function: str, *arguments: Any) -> float | None:
    """Return `offered` of a power in watts; NVML gives milliwatts."""
    milliwatts = offered(nvml, function, *arguments)
    return None if milliwatts is None else float(milliwatts / 1000)


def handle_of(nvml: Any, device: int | str) -> Any:
    """Return NVML's handle of `device`; raises GpuUnavailable if there is no such device."""
    try:
        if isinstance(device, int) or device.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(device))
        return nvml.nvmlDeviceGetHandleByUUID(device)
    except nvml.NVMLError as error:
        if not _is(nvml, error, "INVALID_ARGUMENT", "NOT_FOUND"):
            raise
        count = nvml.nvmlDeviceGetCount()
        raise GpuUnavailable(
            f"no GPU {device} here, where the driver counts {count}. `advisor gpus` lists them."
        ) from None


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

    Not for use from several threads. `advisor.hardware.live_gpu` explains what a device is.
    """

    def __init__(self, device: int | str) -> None:
        self._device = device
        self._start: _Moment | None = None
        self._dcgm: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start a window; one that has not ended is dropped."""
        self._counted_by_dcgm()
        with driver() as nvml:
            _free(nvml, self._start)
            handle = handle_of(nvml, self._device)
            self._start = _moment(nvml, handle)
            if self._start.gpm is None:
                self._dcgm = _begin_dcgm(str(nvml.nvmlDeviceGetUUID(handle)))

    def end(self) -> Activity:
        """Return the GPU's activity since `begin`.

        Raises:
            AdvisorError: `begin` was not called, or the GPU is gone.
        """
        start, self._start = self._start, None
        counters = None
        if start is None:
            raise AdvisorError("a window of GPU activity ends only after it began. Call begin().")
        try:
            with driver() as nvml:
                handle = handle_of(nvml, self._device)
                stop = _moment(nvml, handle)
                seconds = stop.monotonic_s - start.monotonic_s
                if start.gpm is None or stop.gpm is None:
                    counters = _nvml_counters(nvml, handle, start.unix_us)
                elif seconds >= _SHORTEST_GPM_WINDOW_S:
                    counters = _gpm_counters(nvml, start.gpm, stop.gpm)
                _free(nvml, start)
                _free(nvml, stop)
        finally:  # last, because DCGM takes a tenth of a second to answer
            by_dcgm = self._counted_by_dcgm()
        if "gract" in by_dcgm:  # a GPU without GPM
            memory = None if counters is None else counters.memory_utilization
            counters = Counters(source="dcgm", memory_utilization=memory, **by_dcgm)
        if start.energy_mj is None or stop.energy_mj is None:
            return Activity(counters=counters, power_w=None, energy_j=None, seconds=seconds)
        joules = (stop.energy_mj - start.energy_mj) / 1000
        return Activity(
            counters=counters, power_w=joules / seconds, energy_j=joules, seconds=seconds
        )

    def _counted_by_dcgm(self) -> dict[str, float]:
        """End the window of DCGM and return its counts; empty without one."""
        dcgmi, self._dcgm = self._dcgm, None
        return {} if dcgmi is None else _end_dcgm(dcgmi)


def _moment(nvml: Any, handle: Any) -> _Moment:
    monotonic_s, unix_us = perf_counter(), time_ns() // 1000
    energy_mj = offered(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle)
    sample = None
    if offers_gpm(nvml, handle):
        sample = nvml.nvmlGpmSampleAlloc()
        if offered(nvml, "nvmlGpmSampleGet", handle, sample) is None:
            nvml.nvmlGpmSampleFree(sample)
            sample = None
    return _Moment(monotonic_s, unix_us, energy_mj, sample)


def offers_gpm(nvml: Any, handle: Any) -> bool:
    """Return whether the GPU has performance monitoring counters (Hopper and later)."""
    support = offered(nvml, "nvmlGpmQueryDeviceSupport", handle)
    return bool(support and support.isSupportedDevice)


def _free(nvml: Any, moment: _Moment | None) -> None:
    if moment is not None and moment.gpm is not None:
        nvml.nvmlGpmSampleFree(moment.gpm)


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
        for field, answer in zip(_METRICS, request.metrics, strict=False)  # there are more slots
        if answer.nvmlReturn == nvml.NVML_SUCCESS and isfinite(answer.value)
    }
    if "gract" not in values:
        return None
    # Rounding in the driver can slightly exceed 100 per cent.
    shares = {field: min(max(values[field] / 100, 0.0), 1.0) for field in _SHARES & values.keys()}
    rates = {field: values[field] for field in _RATES & values.keys()}
    return Counters(source="gpm", **shares, **rates)


def _nvml_counters(nvml: Any, handle: Any, since_unix_us: int) -> Counters | None:
    """The mean of the driver's own log of utilisation: some 100 entries of 1/6 s to 1 s each."""
    shares: dict[str, float] = {}
    for name in ("gpu", "memory"):
        kind = getattr(nvml, f"NVML_{name.upper()}_UTILIZATION_SAMPLES")
        logged = offered(nvml, "nvmlDeviceGetSamples", handle, kind, since_unix_us)
        percents = [sample.sampleValue.uiVal for sample in logged[1]] if logged else []
        if not percents:  # too short for an entry: use the driver's latest figure
            latest = offered(nvml, "nvmlDeviceGetUtilizationRates", handle)
            percents = [getattr(latest, name)] if latest else []
        if percents:
            shares[name] = min(fmean(percents) / 100, 1.0)
    if "gpu" not in shares:
        return None
    return Counters(source="nvml", gract=shares["gpu"], memory_utilization=shares.get("memory"))


# DCGM's field identifiers, DCGM_FI_PROF_*; each a share, 0..1.
_DCGM_FIELDS = {
    "gract": 1001,  # GR_ENGINE_ACTIVE
    "sm_active": 1002,
    "sm_occupancy": 1003,
    "tensor_active": 1004,  # PIPE_TENSOR_ACTIVE
    "dram_active": 1005,
}
_DCGMI = "dcgmi"
_DELAY_MS = 100
# A row is the mean since the row before: the first begins before the window. Of one row more, a
# mean could be that of a moment.
_UNSURE_ROWS, _FEWEST_ROWS = 1, 2
_PATIENCE_S = 5.0
_PIPE_BYTES = 2**20  # holds what is printed in twenty minutes; after that `dcgmi` waits

_SHARE = re.compile(r"\d+\.\d+")
_NUMBER = re.compile(r"\|\s*(\d+)\s*\|")
_UUID = re.compile(r"Device UUID:\s*(\S+)")


@cache  # a process asks at each look at the GPU
def dcgm_number(uuid: str) -> int | None:
    """Return DCGM's number of the GPU with this UUID; None if DCGM does not answer."""
    if which(_DCGMI) is None:
        return None
    try:
        listing = subprocess.run(
            [_DCGMI, "discovery", "--list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = None
    for line in listing.stdout.splitlines():
        if row := _NUMBER.match(line):
            number = int(row[1])
        if (name := _UUID.search(line)) and name[1] == uuid:
            return number
    return None


def _begin_dcgm(uuid: str) -> subprocess.Popen[str] | None:
    """Let DCGM count on the GPU with this UUID, until `_end_dcgm`; None where it does not.

    DCGM's host engine, `nv-hostengine`, counts, and `dcgmi` asks it; both belong to NVIDIA's
    package `datacenter-gpu-manager`. DCGM counts on data-centre GPUs from Volta on. There are no
    counts if it does not run, or if it reserves its counters for administrators. If this process
    dies, `dcgmi` ends by itself, because its output is no longer read.
    """
    number = dcgm_number(uuid)
    if number is None:
        return None
    fields = ",".join(map(str, _DCGM_FIELDS.values()))
    command = [_DCGMI, "dmon", "-e", fields, "-i", str(number), "-d", str(_DELAY_MS)]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            pipesize=_PIPE_BYTES,
        )
    except OSError:
        return None


def _end_dcgm(dcgmi: subprocess.Popen[str]) -> dict[str, float]:
    """Mean share, 0..1, of each of `_DCGM_FIELDS` for which `dcgmi dmon` printed enough rows."""
    dcgmi.send_signal(SIGINT)  # as for Ctrl-C, it prints what it still holds
    try:
        printed, _ = dcgmi.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        dcgmi.kill()
        dcgmi.communicate()
        return {}
    rows = [line.split()[2:] for line in printed.splitlines() if line.startswith("GPU ")]
    whole = [row for row in rows if len(row) == len(_DCGM_FIELDS)]
    means = {}
    for column, name in enumerate(_DCGM_FIELDS):
        shares = [min(1.0, float(row[column])) for row in whole if _SHARE.fullmatch(row[column])]
        if len(shares) >= _UNSURE_ROWS + _FEWEST_ROWS:
            means[name] = fmean(shares[_UNSURE_ROWS:])
    return means
