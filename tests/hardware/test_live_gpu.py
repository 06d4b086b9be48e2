"""The GPU at hand, over NVML: what is said of it, and what is said where there is none."""

import sys
from types import ModuleType

import pynvml
import pytest

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware import live_gpu
from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_state import BrokenGpu, GpuProcess
from advisor.hardware.mig_layouts import place
from advisor.hardware.mig_offer import as_offered_here, mig_profiles
from advisor.hardware.mps import mps_processes
from advisor.sharing import Instance
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary


def test_an_idle_h200_is_described_in_full(install):
    install(FakeLibrary(FakeGpu()))
    (found,) = live_gpu.live_gpus()
    assert (found.index, found.uuid, found.product) == (0, "GPU-0", "NVIDIA H200")
    assert found.catalogue_key == "h200-141gb"
    assert (found.memory_total_mib, found.memory_used_mib) == (143771, 612)
    assert (found.mig_enabled, found.mig_pending) == (False, False)
    assert (found.compute_mode, found.counters) == ("exclusive-process", "gpm")
    assert (found.power_w, found.power_limit_w, found.gpu_utilization) == (76.5, 700, 0.37)
    assert (found.sm_clock_mhz, found.memory_clock_mhz) == (1980, 3201)
    assert (found.driver, found.processes) == ("580.82.07", ())


def test_a_gpu_without_mig_or_gpm_says_none_rather_than_off(install):
    install(FakeLibrary(FakeGpu("NVIDIA L4", mig=None, gpm=False)))
    (found,) = live_gpu.live_gpus()
    assert (found.mig_enabled, found.mig_pending, found.counters) == (None, None, "nvml")


def test_a_gpu_that_neither_catalogue_nor_driver_describe_has_no_key(install):
    install(FakeLibrary(FakeGpu("NVIDIA Something New", cores=None)))
    assert live_gpu.live_gpu(0).catalogue_key is None


def test_what_a_user_may_not_ask_is_none_and_the_rest_is_there(install):
    denied = dict.fromkeys(
        (
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetComputeMode",
            "nvmlDeviceGetUtilizationRates",
        ),
        pynvml.NVML_ERROR_NO_PERMISSION,
    )
    install(FakeLibrary(FakeGpu(refuses=denied)))
    found = live_gpu.live_gpu(0)
    assert (found.power_w, found.sm_clock_mhz, found.compute_mode) == (None, None, None)
    assert found.gpu_utilization is None
    assert found.power_limit_w == 700
    assert live_gpu.power_w_now(0) is None
    assert live_gpu.clocks_mhz(0) == (None, None)


def test_one_broken_gpu_does_not_hide_the_others(install):
    lost = FakeGpu(uuid="GPU-1", refuses={"nvmlDeviceGetName": pynvml.NVML_ERROR_GPU_IS_LOST})
    install(FakeLibrary(FakeGpu(), lost, FakeGpu(uuid="GPU-2")))
    first, second, third = live_gpu.live_gpus()
    assert isinstance(second, BrokenGpu)
    assert (second.index, "bus" in second.problem) == (1, True)
    assert (first.uuid, third.uuid) == ("GPU-0", "GPU-2")


@pytest.mark.parametrize("device", [1, "1", "GPU-b"])
def test_a_device_is_an_index_or_a_uuid(install, device):
    install(FakeLibrary(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")))
    assert live_gpu.live_gpu(device).uuid == "GPU-b"


@pytest.mark.parametrize("device", [2, "7", "GPU-c"])
def test_a_device_that_is_not_there_is_named_and_the_others_are_counted(install, device):
    install(FakeLibrary(FakeGpu(), FakeGpu(uuid="GPU-1")))
    with pytest.raises(GpuUnavailable, match=f"no GPU {device} here, where the driver counts 2"):
        live_gpu.live_gpu(device)


def test_an_mps_client_is_listed_once_with_all_its_memory(install):
    gpu = FakeGpu(processes={7: 60 * MIB, 9: 5000 * MIB}, mps_clients={9: 5200 * MIB, 11: None})
    install(FakeLibrary(gpu))
    assert live_gpu.live_gpu(0).processes == (
        GpuProcess(7, 60), GpuProcess(9, 5200), GpuProcess(11, None),
    )  # fmt: skip
    assert live_gpu.process_memory_mib(0) == {7: 60, 9: 5200}


def test_no_driver_is_told_in_one_line(monkeypatch):
    def no_library(_name):
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    with pytest.raises(GpuUnavailable, match="no NVIDIA driver is installed here") as caught:
        live_gpu.live_gpus()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "answers nothing to this user"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Reboot"),
    ],
)
def test_a_driver_that_does_not_start_says_what_to_do(install, code, said):
    install(FakeLibrary(FakeGpu(), refuses={"nvmlInitWithFlags": code}))
    with pytest.raises(GpuUnavailable, match=said):
        live_gpu.live_gpus()


def test_any_other_failure_of_the_driver_is_passed_on(install):
    install(FakeLibrary(FakeGpu(), refuses={"nvmlDeviceGetCount_v2": pynvml.NVML_ERROR_TIMEOUT}))
    with pytest.raises(AdvisorError, match="'Timeout'") as caught:
        live_gpu.live_gpus()
    assert not isinstance(caught.value, GpuUnavailable)


def test_a_missing_python_package_is_named_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpuUnavailable, match=r"nvidia-ml-py is not installed.*pip install"):
        live_gpu.live_gpus()


def test_another_package_of_the_same_name_is_recognised(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", ModuleType("pynvml"))
    with pytest.raises(GpuUnavailable, match=r"not the one of nvidia-ml-py.*pip uninstall"):
        live_gpu.live_gpus()


THREE = {
    "id": 9, "name": b"MIG 3g.71gb", "sliceCount": 3, "instanceCount": 2,
    "multiprocessorCount": 60, "memorySizeMB": 71424, "places": [(4, 4), (0, 4)],
}  # fmt: skip


def test_the_driver_s_own_mig_table_is_read(install):
    install(FakeLibrary(FakeGpu(profiles={2: THREE})))
    (row,) = mig_profiles(0)
    assert (row.name, row.profile_id, row.starts) == ("3g.71gb", 9, (0, 4))
    assert (row.compute_slices, row.memory_slices, row.memory_mib) == (3, 4, 71424)
    assert (row.sms, row.max_instances) == (60, 2)


def test_the_table_of_the_driver_at_hand_is_preferred_to_the_catalogue_s(install):
    other = FakeGpu("NVIDIA L4", uuid="GPU-1", mig=None)
    narrow = THREE | {"places": [(4, 4)], "memorySizeMB": 70000}
    install(FakeLibrary(other, FakeGpu(profiles={2: narrow})))
    here, branch = as_offered_here(gpu("h200-141gb"))
    assert branch == 580
    assert [(row.name, row.starts, row.memory_mib) for row in here.mig] == [
        ("3g.71gb", (4,), 70000)
    ]
    assert here.sources["mig"] == "driver 580.82.07 of GPU 1 at hand"
    assert place(here, [Instance("3g.71gb")]) == (Instance("3g.71gb", 4),)


def test_the_catalogue_s_table_holds_where_no_such_gpu_or_no_driver_is_at_hand(
    install, monkeypatch
):
    install(FakeLibrary(FakeGpu("NVIDIA L4", mig=None)))
    assert as_offered_here(gpu("h200-141gb")) == (gpu("h200-141gb"), None)
    install(FakeLibrary(FakeGpu(refuses={
        "nvmlDeviceGetGpuInstanceProfileInfoV": pynvml.NVML_ERROR_NO_PERMISSION
    })))  # fmt: skip
    assert as_offered_here(gpu("h200-141gb")) == (gpu("h200-141gb"), None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert as_offered_here(gpu("h200-141gb")) == (gpu("h200-141gb"), None)


def test_a_gpu_without_mig_offers_no_instances(install):
    install(FakeLibrary(FakeGpu("NVIDIA L4", mig=None)))
    assert mig_profiles(0) == ()


def process(proc, pid, command, environment=b""):
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(command)
    (folder / "environ").write_bytes(environment)


def test_an_mps_daemon_is_found_with_its_pipe_directory(tmp_path):
    process(tmp_path, 812, b"/usr/bin/nvidia-cuda-mps-server\0")
    process(
        tmp_path, 99, b"nvidia-cuda-mps-control\0-f\0", b"A=1\0CUDA_MPS_PIPE_DIRECTORY=/run/mps\0"
    )
    process(tmp_path, 100, b"grep\0nvidia-cuda-mps-control\0")
    process(tmp_path, 101, b"")  # a kernel thread, or a zombie
    (tmp_path / "103").mkdir()  # it ended while we looked
    (tmp_path / "self").mkdir()
    control, server = mps_processes(tmp_path)
    assert (control.pid, control.role, control.pipe_directory) == (99, "control", "/run/mps")
    assert (server.pid, server.role, server.pipe_directory) == (812, "server", None)
    assert control.owner


def test_a_machine_without_mps_has_no_mps_processes(tmp_path):
    assert mps_processes(tmp_path) == ()
