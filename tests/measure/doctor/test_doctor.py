"""``advisor doctor``: hosts and GPUs with one thing wrong, as kernel and driver would show it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from advisor.hardware import nvml as health_of
from advisor.hardware.live_gpu import live_gpu
from advisor.hardware.machine import BrokenGpu, GpuProcess, MpsProcess
from advisor.hardware.nvml import gpu_health, time_slice_in
from advisor.measure import doctor as doctor_command
from advisor.measure.doctor import HostHealth, gpu_findings, host_findings, host_health
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import FakeGpu, FakeLibrary

HOST = HostHealth(
    administrator=True, container=None, cores=tuple(range(16)), online=16,
    quota_cores=None, governors=dict.fromkeys(range(16), "performance"), siblings=(), stolen=0.0,
    wanting=0.5, shm_mib=64_000.0, core_s=dict.fromkeys(range(16), 0.003),
    core_later_s=dict.fromkeys(range(16), 0.003), mps=(), has_mps=True, variables=(),
)  # fmt: skip
SLOW = HOST.core_s | {3: 0.006}
SOUND = {"compute_mode": 0, "default_limit_mw": 700_000}
# As driver 580.159.04 prints it on an H200.
HEAD = """\
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
"""
STRANGER = MpsProcess(71, "control", "ada", "/tmp/nvidia-mps")


def owner(_pid):
    return "ada"


@pytest.fixture(autouse=True)
def _nothing_was_left(monkeypatch):
    # Other tests may have left something.
    monkeypatch.setattr(doctor_command, "leftover_findings", tuple)


@pytest.fixture
def looked_at(install, monkeypatch):  # noqa: F811
    """What is found on a GPU of which one thing is not as it should be."""

    def look(time_slice="default", driver=None, **wrong):
        install(FakeLibrary(FakeGpu(**SOUND | wrong)))
        monkeypatch.setattr(health_of, "_time_slice", lambda _: time_slice)
        gpu = live_gpu(0)
        return list(gpu_findings(replace(gpu, driver=driver or gpu.driver), gpu_health(0), owner))

    return look


def test_a_machine_that_is_as_it_should_be_has_no_finding(looked_at):
    assert list(host_findings(HOST)) == []
    assert looked_at() == []


@pytest.mark.parametrize(
    ("severity", "wrong", "remedy"),
    [
        ("blocks", {"mps": (STRANGER,)}, "ada"), ("blocks", {"has_mps": False}, "mps-control"),
        ("spoils", {"governors": {0: "performance", 1: "powersave"}}, "powersave"),
        ("spoils", {"core_s": SLOW, "core_later_s": SLOW}, "cores 3 "),
        ("spoils", {"core_s": HOST.core_s | {3: 0.0045}, "core_later_s": HOST.core_s | {7: 0.0057}},
         "cores 3,7"),
        ("spoils", {"stolen": 0.2}, "20%"), ("spoils", {"wanting": 21.0}, "16 cores"),
        ("spoils", {"quota_cores": 4.0}, "4 cores"), ("spoils", {"shm_mib": 64.0}, "/dev/shm"),
        ("note", {"siblings": ((0, 8), (1, 9))}, "0,8; 1,9"), ("note", {"online": 64}, "16 of 64"),
        ("note", {"container": "docker"}, "docker"), ("note", {"administrator": False}, "rights"),
        ("note", {"variables": ("CUDA_MPS_PIPE_DIRECTORY",)}, "CUDA_MPS_PIPE_DIRECTORY"),
    ],
)  # fmt: skip
def test_each_fault_of_a_host_is_found_with_a_remedy(severity, wrong, remedy):
    (found,) = host_findings(replace(HOST, **wrong))
    assert (found.severity, found.about) == (severity, "host")
    assert remedy in f"{found.what} {found.remedy}"
    assert found.why
    assert found.remedy


@pytest.mark.parametrize(
    ("severity", "wrong", "remedy"),
    [
        ("blocks", {"compute_mode": 2}, "nvidia-smi -i 0 -c DEFAULT"),
        ("blocks", {"compute_mode": 3}, "nvidia-smi -i 0 -c DEFAULT"),
        ("blocks", {"processes": {11: 2**30}}, "recommend --now"),
        ("blocks", {"mig": (1, 1)}, "-mig 0"), ("blocks", {"mig": (0, 1)}, "--gpu-reset"),
        ("blocks", {"driver": "535.10.1"}, "update the driver"),
        ("blocks", {"product": "NVIDIA Foo", "cores": None}, "update"),
        ("spoils", {"persistence": 0}, "-i 0 -pm 1"),
        ("spoils", {"time_slice": "long"}, "--set-timeslice 0"),
        ("spoils", {"slowed": 0x44 | 1}, "-i 0 -d CLOCK"),
        ("spoils", {"default_limit_mw": 600_000}, "--power-cap 700"),
        ("spoils", {"uncorrected": 3}, "reset"), ("spoils", {"remap_pending": 1}, "--gpu-reset"),
        ("note", {"ecc": (1, 0)}, "reset"), ("note", {"ecc": (0, 0)}, "-e 1"),
        ("note", {"gpm": False}, "nvidia-dcgm"),
        ("note", {"product": "NVIDIA A100-SXM4-40GB", "driver": "470.82.01", "capability": (8, 0)},
         "driver"),
    ],
)  # fmt: skip
def test_each_fault_of_a_gpu_is_found_with_a_remedy(looked_at, severity, wrong, remedy):
    (found,) = looked_at(**wrong)
    assert (found.severity, found.about) == (severity, "GPU 0")
    assert remedy in found.remedy
    assert found.why


def test_a_gpu_that_is_idle_or_does_not_answer_is_not_slow(looked_at):
    assert looked_at(slowed=1) == []
    (found,) = gpu_findings(BrokenGpu(1, "the GPU has fallen off its bus."), None, owner)
    assert (found.severity, found.about) == ("blocks", "GPU 1")


def test_what_a_driver_does_not_say_is_no_finding(install, monkeypatch):  # noqa: F811
    silent = dict.fromkeys(
        (
            "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetEccMode", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetComputeMode",
        ),
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    )  # fmt: skip
    install(FakeLibrary(FakeGpu(refuses=silent)))
    monkeypatch.setattr(health_of, "_time_slice", lambda _: None)
    health = gpu_health(0)
    assert (health.persistence, health.ecc, health.remap_pending) == (None, None, None)
    assert list(gpu_findings(live_gpu(0), health, owner)) == []


@pytest.mark.parametrize(
    ("listing", "setting"),
    [
        (f"{HEAD}|   0   Timeslice       Default       |\n", "default"),
        (f"{HEAD}|   0   Timeslice       Long          |\n", "long"),
        ("default short medium long", None),
        ("", None),
    ],
)
def test_the_time_slice_is_read_where_the_listing_is_clear(listing, setting):
    assert time_slice_in(listing) == setting


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Folders as the kernel's, in which files can be put."""
    monkeypatch.setattr(doctor_command, "_TICKING_S", 0.0)

    def put(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "proc").mkdir(exist_ok=True)
        return host_health(tmp_path, lambda _core: "one")

    return put


def test_a_host_is_read_from_the_kernel(kernel):
    core = min(os.sched_getaffinity(0))
    found = kernel(**{
        "proc__self__status": "Name:\tx\nCapEff:\t000001ffffffffff\n",
        "proc__loadavg": "3.25 1.0 1.0 1/99 7\n",
        "proc__1__cgroup": "0::/kubepods/pod1\n",
        "proc__stat": "cpu  10 0 10 70 0 0 0 10 0 0\n",
        "sys__fs__cgroup__cpu.max": "150000 100000\n",
        f"sys__devices__system__cpu__cpu{core}__cpufreq__scaling_governor": "powersave\n",
    })  # fmt: skip
    assert (found.administrator, found.container, found.wanting) == (True, "kubepods", 3.25)
    assert found.quota_cores == 1.5
    assert found.governors == {core: "powersave"}
    assert found.stolen is None  # nothing was counted yet
    assert found.siblings == (found.cores,) or len(found.cores) == 1
    assert all(each_s > 0 for each_s in found.core_s.values())


@pytest.mark.parametrize("text", ["", "max 100000", "nonsense", "0 0", "\x00 \x01"])
def test_a_kernel_that_says_nothing_of_use_is_no_error(kernel, text):
    names = ("sys__fs__cgroup__cpu.max", "proc__stat", "proc__1__cgroup")
    found = kernel(**dict.fromkeys(names, text))
    assert (found.quota_cores, found.stolen, found.administrator) == (None, None, False)


def test_the_worst_comes_first_and_the_exit_code_says_whether_it_blocks(monkeypatch, capsys):
    wrong = replace(HOST, shm_mib=64.0, administrator=False, mps=(STRANGER,))
    monkeypatch.setattr(doctor_command, "host_health", lambda: wrong)
    monkeypatch.setattr(doctor_command, "live_gpus", tuple)
    assert doctor_command.run_doctor(["--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["blocked"]
    assert [each["severity"] for each in document["findings"]] == ["blocks", "spoils", "note"]
    monkeypatch.setattr(doctor_command, "host_health", lambda: replace(wrong, mps=()))
    assert doctor_command.run_doctor([]) == 0


def test_a_gpu_in_use_blocks(install, monkeypatch, capsys):  # noqa: F811
    install(
        FakeLibrary(
            FakeGpu(**SOUND, processes={os.getpid(): 2**30}), FakeGpu(**SOUND, uuid="GPU-1")
        )
    )
    monkeypatch.setattr(health_of, "_time_slice", lambda _: None)
    monkeypatch.setattr(doctor_command, "host_health", lambda: HOST)
    assert live_gpu(0).processes == (GpuProcess(os.getpid(), 1024.0),)
    assert doctor_command.run_doctor([]) == 4
    said = capsys.readouterr().out
    assert f"GPU 0: process {os.getpid()} of {Path('/proc/self').owner()} uses it" in said
    assert "GPU 1" not in said


def test_it_runs_in_environments_that_hold_little_else():
    blocked = ("pydantic", "typer", "rich", "numpy", "torch", "pandas", "sklearn", "numba")
    code = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "from advisor.measure.__main__ import main\nsys.exit(main(['doctor', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout)["schema"] == 1
