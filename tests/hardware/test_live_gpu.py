"""The GPU of this machine, over NVML, also one that the catalogue lacks."""

import json
import sys
from types import SimpleNamespace

import pynvml
import pytest

from advisor.errors import GpuUnavailable, InvalidInput
from advisor.hardware.gpus import gpu, gpu_meant, gpu_of_product, known_gpus
from advisor.hardware.live_gpu import (
    as_offered_here,
    clocks_mhz,
    live_gpu,
    live_gpus,
    mig_devices,
    power_w_now,
    process_memory_mib,
    visible_device,
)
from advisor.hardware.machine import BrokenGpu, GpuProcess
from advisor.hardware.mig import place
from advisor.measure.device import find_device
from advisor.sharing import Instance
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary, mig_device


def test_an_idle_h200_is_described_in_full(install):
    install(FakeLibrary(FakeGpu()))
    (found,) = live_gpus()
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
    (found,) = live_gpus()
    assert (found.mig_enabled, found.mig_pending, found.counters) == (None, None, "nvml")
    install(FakeLibrary(FakeGpu("NVIDIA Something New", cores=None)))
    assert live_gpu(0).catalogue_key is None


def test_what_a_user_may_not_ask_is_none_and_the_rest_is_there(install):
    names = ("PowerUsage", "ClockInfo", "ComputeMode", "UtilizationRates")
    denied = {f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_NO_PERMISSION for name in names}
    install(FakeLibrary(FakeGpu(refuses=denied)))
    found = live_gpu(0)
    assert (found.power_w, found.sm_clock_mhz, found.compute_mode) == (None, None, None)
    assert found.gpu_utilization is None
    assert found.power_limit_w == 700
    assert power_w_now(0) is None
    assert clocks_mhz(0) == (None, None)


def test_one_broken_gpu_does_not_hide_the_others(install):
    lost = FakeGpu(uuid="GPU-1", refuses={"nvmlDeviceGetName": pynvml.NVML_ERROR_GPU_IS_LOST})
    install(FakeLibrary(FakeGpu(), lost, FakeGpu(uuid="GPU-2")))
    first, second, third = live_gpus()
    assert isinstance(second, BrokenGpu)
    assert (second.index, "bus" in second.problem) == (1, True)
    assert (first.uuid, third.uuid) == ("GPU-0", "GPU-2")


def test_a_device_is_an_index_or_a_uuid_of_those_that_the_driver_counts(install):
    install(FakeLibrary(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")))
    assert {live_gpu(device).uuid for device in (1, "1", "GPU-b")} == {"GPU-b"}
    for device in (2, "7", "GPU-c"):
        named = f"no GPU {device} here, where the driver counts 2"
        with pytest.raises(GpuUnavailable, match=named):
            live_gpu(device)


def test_a_program_is_given_an_index_where_cuda_counts_gpus_as_the_driver_does(install):
    first, second = FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b", mig=None)
    install(FakeLibrary(first, second))
    by_index = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_device("GPU-b") == by_index
    first.mig = (1, 1)
    assert visible_device("GPU-b") == {"CUDA_VISIBLE_DEVICES": "GPU-b"}
    first.mig, lost = (0, 0), {"nvmlDeviceGetUUID": pynvml.NVML_ERROR_GPU_IS_LOST}
    first.refuses = lost
    assert visible_device("GPU-b") == {"CUDA_VISIBLE_DEVICES": "GPU-b"}
    assert visible_device("MIG-c") == {"CUDA_VISIBLE_DEVICES": "MIG-c"}


def test_an_mps_client_is_listed_once_with_all_its_memory(install):
    gpu = FakeGpu(processes={7: 60 * MIB, 9: 5000 * MIB}, mps_clients={9: 5200 * MIB, 11: None})
    install(FakeLibrary(gpu))
    assert live_gpu(0).processes == (
        GpuProcess(7, 60),
        GpuProcess(9, 5200),
        GpuProcess(11, None),
    )
    assert process_memory_mib(0) == {7: 60, 9: 5200}


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "this user"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Reboot"),
    ],
)
def test_a_machine_without_a_working_driver_exits_4_and_names_the_remedy(install, code, remedy):
    install(FakeLibrary(FakeGpu(), refuses={"nvmlInitWithFlags": code}))
    with pytest.raises(GpuUnavailable, match=remedy) as caught:
        live_gpus()
    assert caught.value.exit_code == 4


def test_a_missing_python_package_is_named_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpuUnavailable, match="pip install"):
        live_gpus()


@pytest.mark.parametrize("silent", [False, True])
def test_a_mig_device_is_a_gpu_of_its_own_in_proportion_to_its_slices(
    silent, install, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    part = mig_device("3g.71gb", "MIG-a", 1 if silent else 60, 71424)
    if silent:  # then it is described by the table of its GPU
        part.refuses["nvmlDeviceGetAttributes_v2"] = pynvml.NVML_ERROR_NOT_FOUND
    install(FakeLibrary(FakeGpu(uuid="GPU-0", mig=(1, 1), instances=(part,))))
    assert mig_devices(0) == {"MIG-a": "3g.71gb"}
    live = live_gpu("MIG-a")
    assert (live.catalogue_key, live.uuid) == ("h200-141gb-3g.71gb", "MIG-a")
    assert (live.mig_enabled, live.power_w, live.memory_total_mib) == (None, None, 71424)
    own, whole = gpu("h200-141gb-3g.71gb"), gpu("h200-141gb")
    assert (own.sms, own.memory_mib, own.mig) == (60, 71424, ())
    assert own.bandwidth_gb_s == whole.bandwidth_gb_s / 2
    assert own.max_mps_clients == whole.max_mps_clients * 3 // 7
    assert gpu_meant("H200") == whole, "a part is named in full"
    assert gpu_meant(own.key) == own
    assert mig_devices("MIG-a") == {}


def test_a_gpu_in_mig_mode_stands_for_its_only_mig_device(install, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    part = mig_device("3g.71gb", "MIG-a", 60, 71424)
    whole = FakeGpu(uuid="GPU-0", mig=(1, 1), instances=(part,))
    install(FakeLibrary(whole))
    for name in ("0", "MIG-a"):
        device = find_device(name)
        assert (device.uuid, device.key) == ("MIG-a", "h200-141gb-3g.71gb")
    assert find_device("0", on_mig=True).uuid == "GPU-0"
    whole.instances = (part, mig_device("4g.71gb", "MIG-b", 64, 71424))
    with pytest.raises(GpuUnavailable, match=r"MIG-a \(3g.71gb\), MIG-b"):
        find_device("0")
    whole.instances = ()
    with pytest.raises(GpuUnavailable, match="-mig 0"):
        find_device("0")


def test_a_gpu_without_memory_of_its_own_has_the_hosts(install, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    host = SimpleNamespace(total=120 * 2**30, available=100 * 2**30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: host)
    refuses = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}
    for product, key in (("NVIDIA GB10", "gb10-128gb"), ("NVIDIA GB11", "gb11-120gb")):
        unified = FakeGpu(
            product, mig=None, capability=(12, 1), cores=6144, gpm=False, refuses=refuses
        )
        install(FakeLibrary(unified))
        live = live_gpu(0)
        assert live.catalogue_key == key
        assert (live.memory_total_mib, live.memory_used_mib) == (120 * 1024, 20 * 1024)
    assert gpu("gb11-120gb").memory_mib == 120 * 1024
    unified.refuses = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NO_PERMISSION}
    with pytest.raises(GpuUnavailable):
        live_gpu(0)


THREE = {
    "id": 9,
    "name": b"MIG 3g.71gb",
    "sliceCount": 3,
    "instanceCount": 2,
    "multiprocessorCount": 60,
    "memorySizeMB": 71424,
    "places": [(4, 4), (0, 4)],
}


def test_the_table_of_this_driver_is_preferred_to_the_catalogue_s(install):
    other = FakeGpu("NVIDIA L4", uuid="GPU-1", mig=None)
    narrow = THREE | {"places": [(4, 4)], "memorySizeMB": 70000}
    install(FakeLibrary(other, FakeGpu(profiles={2: narrow})))
    here, branch = as_offered_here(gpu("h200-141gb"))
    assert branch == 580
    assert [(row.name, row.starts, row.memory_mib) for row in here.mig] == [
        ("3g.71gb", (4,), 70000)
    ]
    assert here.sources["mig"] == "driver 580.82.07 of GPU 1 of this machine"
    assert place(here, (Instance("3g.71gb"),)) == (Instance("3g.71gb", 4),)


def test_the_catalogue_s_table_holds_where_no_such_gpu_or_no_driver_is_at_hand(
    install, monkeypatch
):
    install(FakeLibrary(FakeGpu("NVIDIA L4", mig=None)))
    assert as_offered_here(gpu("h200-141gb")) == (gpu("h200-141gb"), None)
    install(
        FakeLibrary(
            FakeGpu(
                refuses={"nvmlDeviceGetGpuInstanceProfileInfoV": pynvml.NVML_ERROR_NO_PERMISSION}
            )
        )
    )
    assert as_offered_here(gpu("h200-141gb")) == (gpu("h200-141gb"), None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert as_offered_here(gpu("h200-141gb")) == (gpu("h200-141gb"), None)


KEY = "rtx-3080-12gb"


def card(**other):
    said = {"mig": None, "gpm": False, "capability": (8, 6), "cores": 8960, "memory_mib": 12288}
    return FakeGpu("NVIDIA GeForce RTX 3080", **said | other)


@pytest.fixture
def at_hand(install, tmp_path, monkeypatch):
    """The file in which what the driver of this machine's GPU says is kept."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("advisor.hardware.live_gpu._l2_mib", lambda _uuid: 6.0)
    install(FakeLibrary(card()))
    return tmp_path / "advisor" / "gpus" / f"{KEY}.json"


def test_its_driver_says_what_it_is_and_it_is_known_later_without_one(at_hand, install):
    assert live_gpu(0).catalogue_key == KEY
    install(FakeLibrary())
    assert at_hand.is_file()
    assert gpu_meant("RTX 3080").key == KEY
    assert gpu_of_product("NVIDIA GeForce RTX 3080") == known_gpus()[KEY]
    found = gpu(KEY)
    assert (found.sms, found.memory_mib, found.usable_mib) == (70, 12288, 12288 - 346)
    assert found.bandwidth_gb_s == pytest.approx(936, abs=1)
    assert (found.architecture, found.compute_capability) == ("Ampere", "8.6")
    assert (found.power_limit_w, found.power_limit_min_w, found.l2_mib) == (350.0, 100.0, 6.0)
    assert (found.threads_per_sm, found.max_mps_clients) == (1536, 48)
    assert (found.mig, found.memory_slices) == ((), 0)


def test_its_kinds_of_mig_instances_are_the_drivers(at_hand, install):
    one = THREE | {"id": 19, "name": b"MIG 1g.6gb", "sliceCount": 1, "places": [(0, 1), (1, 1)]}
    two = THREE | {"id": 0, "name": b"MIG 2g.12gb", "sliceCount": 2, "places": [(0, 2)]}
    rows = {0: one, 1: two}
    install(FakeLibrary(card(mig=(0, 0), profiles=rows)))
    live_gpu(0)
    found = gpu(KEY)
    assert [row.name for row in found.mig] == ["1g.6gb", "2g.12gb"]
    assert found.memory_slices == 2
    assert at_hand.is_file()


def test_a_gpu_older_than_volta_is_refused(at_hand, install):
    install(FakeLibrary(card(capability=(6, 1))))
    with pytest.raises(InvalidInput, match="older than Volta"):
        find_device("0")
    assert not at_hand.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"sms": 0},
        {"memory_mib": 1e30},
        {"schema": 0},
        {"key": "other"},
        {"mig": [{}]},
        {"surprise": 1},
        {"l2_mib": -1},
    ],
)
def test_a_description_that_cannot_be_is_refused_and_hides_no_other(at_hand, change):
    live_gpu(0)
    at_hand.write_text(json.dumps(json.loads(at_hand.read_text()) | change))
    with pytest.raises(InvalidInput, match=f"{KEY}.json: .*advisor gpus"):
        gpu(KEY)
    assert gpu_meant("A30").key == "a30-24gb"
