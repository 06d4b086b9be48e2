import pynvml
import pytest

from advisor.hardware import nvml as dcgm


@pytest.fixture
def install(monkeypatch):
    """Puts a `FakeLibrary` under pynvml, and its clock under the sampler; returns it."""

    def put(library):
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr("advisor.hardware.nvml.perf_counter", lambda: library.now_s)
        monkeypatch.setattr("advisor.hardware.nvml.time_ns", lambda: int(library.now_s * 1e9))
        dcgm.dcgm_number.cache_clear()
        return library

    return put
