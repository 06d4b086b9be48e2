"""``advisor doctor``: hosts and GPUs with one thing wrong, as kernel and driver would show it."""

import fcntl
import json
import os
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from advisor.cli import main
from advisor.hardware import live_gpu as health_of
from advisor.hardware.live_gpu import gpu_health, live_gpu, time_slice_in
from advisor.hardware.machine import CONTROL, BrokenGpu, GpuProcess, MpsProcess
from advisor.run import doctor as doctor_command
from advisor.run.doctor import gpu_findings, host_findings, leftover_findings
from advisor.run.start import boot_id, lock_file, state_file
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.test_schemas import problems

SOUND = {"compute_mode": 0, "default_limit_mw": 700_000}
# As driver 580.159.04 prints it on an H200.
HEAD = """\
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
"""
STRANGER = MpsProcess(71, "control", "ada", "/tmp/nvidia-mps")


CORES = tuple(range(16))
SOUND_FILES = {
    "proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\n",
    "proc/1/cgroup": "0::/init.scope\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    **{
        f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor": "performance\n"
        for core in CORES
    },
}
FIRST_CGROUPS = {
    "sys/fs/cgroup/cpu.max": "",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
}
GOVERNOR = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"


class Host:
    """A host as its kernel shows it, of which one thing may not be as it should be.

    Attributes:
        pieces_s: Seconds of the same work, in turn.
    """

    def __init__(self, root, monkeypatch):
        self.root, self._set = root, monkeypatch
        self.pieces_s = [0.010, 0.011]
        self.mps, self.shm_mib, self.stolen_pct, self.load = (), 64_000, 0.5, 0.5
        self.control, self.online = f"/usr/bin/{CONTROL}", len(CORES)
        self.variables = {}
        self.put(SOUND_FILES)
        for name in [each for each in os.environ if each.startswith("CUDA_")]:
            monkeypatch.delenv(name)
        turn = count()
        for target, name, value in (
            (psutil, "disk_usage", lambda _: SimpleNamespace(total=self.shm_mib * 2**20)),
            (psutil, "cpu_times_percent", lambda _: SimpleNamespace(steal=self.stolen_pct)),
            (psutil, "getloadavg", lambda: (self.load, 1.0, 1.0)),
            (doctor_command, "_ROOT", root),
            (os, "cpu_count", lambda: self.online),
            (doctor_command, "which", lambda _: self.control),
            (doctor_command, "allowed_cores", lambda: CORES),
            (doctor_command, "mps_processes", lambda: self.mps),
            (doctor_command, "_piece_s", lambda: self.pieces_s[next(turn) % len(self.pieces_s)]),
        ):
            monkeypatch.setattr(target, name, value)

    def put(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def findings(self):
        for name, value in self.variables.items():
            self._set.setenv(name, value)
        return list(host_findings())


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _nothing_was_left(monkeypatch):
    # Other tests may have left something.
    monkeypatch.setattr(doctor_command, "leftover_findings", tuple)


@pytest.fixture
def looked_at(install, monkeypatch):  # noqa: F811
    """What is found on a GPU of which one thing is not as it should be."""

    def look(time_slice="default", **wrong):
        install(FakeLibrary(FakeGpu(**SOUND | wrong)))
        monkeypatch.setattr(health_of, "_time_slice", lambda _: time_slice)
        return list(gpu_findings(live_gpu(0)))

    return look


def test_a_machine_that_is_as_it_should_be_has_no_finding(host, looked_at):
    assert host.findings() == []
    assert looked_at() == []


@pytest.mark.parametrize(
    ("severity", "wrong", "files", "remedy"),
    [
        ("blocks", {"mps": (STRANGER,)}, {}, "ada"),
        ("spoils", {"pieces_s": [0.010, 0.019]}, {}, "1.9 times"),
        ("spoils", {"shm_mib": 64}, {}, "/dev/shm"),
        ("spoils", {"stolen_pct": 20.0}, {}, "20 %"),
        ("spoils", {"load": 21.0}, {}, "21.0 processes"),
        ("spoils", {}, {GOVERNOR: "powersave\n"}, "by powersave"),
        ("spoils", {}, {"sys/fs/cgroup/cpu.max": "400000 100000\n"}, "4 cores"),
        ("spoils", {}, FIRST_CGROUPS, "allows the time of 1.5 cores"),
        ("blocks", {"control": None}, {}, "mps-control"),
        ("note", {"online": 64}, {}, "16 of 64"),
        ("note", {"variables": {"CUDA_MPS_PIPE_DIRECTORY": "/tmp"}}, {}, "CUDA_MPS_PIPE_DIRECTORY"),
        ("note", {}, {"proc/1/cgroup": "0::/kubepods/pod1\n"}, "kubepods"),
        ("note", {}, {".dockerenv": ""}, "docker"),
        ("note", {}, {"proc/self/status": "CapEff:\t0000000000000000\n"}, "rights"),
    ],
)
def test_each_fault_of_a_host_is_found_with_a_remedy(host, severity, wrong, files, remedy):
    vars(host).update(wrong)
    host.put(files)
    (found,) = host.findings()
    assert (found.severity, found.about) == (severity, "host")
    assert remedy in f"{found.what} {found.remedy}"
    assert found.why


def test_a_kernel_that_reports_nothing_of_use_is_no_error(host):
    for text in ("", "max 100000", "nonsense", "0 0", "\x00 \x01"):
        host.put(dict.fromkeys(("sys/fs/cgroup/cpu.max", "proc/1/cgroup"), text))
        assert host.findings() == []


@pytest.mark.parametrize(
    ("severity", "wrong", "remedy"),
    [
        ("blocks", {"compute_mode": 3}, "nvidia-smi -i 0 -c DEFAULT"),
        ("blocks", {"processes": {11: 2**30}}, "admit JOB --now"),
        ("note", {"mig": (1, 1)}, "-mig 0"),
        ("spoils", {"mig": (0, 1)}, "--gpu-reset"),
        ("blocks", {"product": "NVIDIA Foo", "cores": None}, "update"),
        ("spoils", {"persistence": 0}, "-i 0 -pm 1"),
        ("spoils", {"time_slice": "long"}, "--set-timeslice 0"),
        ("spoils", {"slowed": 0x44 | 1}, "-i 0 -d CLOCK"),
        ("spoils", {"default_limit_mw": 600_000}, "--power-cap 700"),
        ("spoils", {"uncorrected": 3}, "reset"),
        ("spoils", {"remap_pending": 1}, "--gpu-reset"),
        ("spoils", {"ecc": (1, 0)}, "reset"),
        ("note", {"ecc": (0, 0)}, "-e 1"),
        ("note", {"gpm": False}, "nvidia-dcgm"),
    ],
)
def test_each_fault_of_a_gpu_is_found_with_a_remedy(looked_at, severity, wrong, remedy):
    (found,) = looked_at(**wrong)
    assert (found.severity, found.about) == (severity, "GPU 0")
    assert remedy in found.remedy
    assert found.why


def test_a_gpu_that_is_idle_or_does_not_answer_is_not_slow(looked_at):
    assert looked_at(slowed=1) == []
    (found,) = gpu_findings(BrokenGpu(1, "the GPU has fallen off its bus."))
    assert (found.severity, found.about) == ("blocks", "GPU 1")


def test_what_a_killed_measurement_left_is_named_with_its_living_processes(tmp_path, monkeypatch):
    folder, lock = tmp_path / "folder", tmp_path / "GPU-0.lock"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(doctor_command, "left_behind", lambda: (folder, lock))
    monkeypatch.setattr(doctor_command, "scripts_within", lambda at: [71] if at == folder else [])
    monkeypatch.setattr(doctor_command, "mps_within", lambda _: [])
    by_folder, by_lock = leftover_findings()
    assert (by_folder.severity, by_lock.severity) == ("spoils", "note")
    assert f"left {folder}; these processes of it live: 71" in by_folder.what
    assert {by_folder.remedy, by_lock.remedy} == {"advisor doctor --undo"}


def test_what_a_killed_script_changed_is_named_and_not_that_of_a_live_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(doctor_command, "left_behind", tuple)
    state = state_file("GPU-0")
    state.parent.mkdir(parents=True)
    lock_file(state).touch()
    lines = [f"# boot {boot_id()}", 'declare -- mark="no-such-mark"', "undos[0]=cap\\ 500.00"]
    state.write_text("\n".join([*lines, "undos[1]=remove\\ 5:0", "undos[1]=:", ""]))
    (finding,) = leftover_findings()
    assert (finding.severity, str(state) in finding.what) == ("spoils", True)
    assert "advisor doctor --undo" in finding.remedy
    assert ("cap 500.00" in finding.why, "remove" in finding.why) == (True, False)
    with lock_file(state).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not [*leftover_findings()]
    state.write_text("# boot another\nundos[0]=cap\\ 500.00\n")
    assert not [*leftover_findings()]


def test_what_a_driver_does_not_say_is_no_finding(install, monkeypatch):  # noqa: F811
    silent = dict.fromkeys(
        (
            "nvmlDeviceGetPersistenceMode",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetEccMode",
            "nvmlDeviceGetTotalEccErrors",
            "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetPowerManagementDefaultLimit",
            "nvmlDeviceGetComputeMode",
        ),
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    )
    install(FakeLibrary(FakeGpu(refuses=silent)))
    monkeypatch.setattr(health_of, "_time_slice", lambda _: None)
    health = gpu_health(0)
    assert (health.persistence, health.ecc, health.remap_pending) == (None, None, None)
    assert list(gpu_findings(live_gpu(0))) == []


def test_the_time_slice_is_read_where_the_listing_is_clear():
    for word in ("Default", "Long"):
        listing = f"{HEAD}|   0   Timeslice       {word}       |\n"
        assert time_slice_in(listing) == word.lower()
    assert time_slice_in("default short medium long") is time_slice_in("") is None


def doctored(capsys, *words):
    """The exit code of `advisor doctor`, and what it prints on stdout."""
    with pytest.raises(SystemExit) as end:
        main(["doctor", *words])
    return end.value.code or 0, capsys.readouterr().out


def test_the_worst_comes_first_and_the_exit_code_says_whether_it_blocks(host, monkeypatch, capsys):
    host.mps, host.shm_mib = (STRANGER,), 64
    host.put({"proc/self/status": ""})
    wrong = host.findings()
    monkeypatch.setattr(doctor_command, "host_findings", lambda: wrong)
    monkeypatch.setattr(doctor_command, "live_gpus", tuple)
    code, out = doctored(capsys, "--json")
    document = json.loads(out)
    assert (code, document["blocked"]) == (4, True)
    assert problems("findings", document) == []
    assert [each["severity"] for each in document["findings"]] == ["blocks", "spoils", "note"]
    wrong = wrong[1:]
    assert doctored(capsys)[0] == 0


def test_a_gpu_in_use_blocks_and_one_that_is_free_does_not(install, monkeypatch, capsys):  # noqa: F811
    mine = {os.getpid(): 2**30}
    install(FakeLibrary(FakeGpu(**SOUND, processes=mine), FakeGpu(**SOUND, uuid="GPU-1")))
    monkeypatch.setattr(health_of, "_time_slice", lambda _: None)
    monkeypatch.setattr(doctor_command, "host_findings", tuple)
    assert live_gpu(0).processes == (GpuProcess(os.getpid(), 1024.0),)
    code, said = doctored(capsys)
    assert (code, "GPU 1" in said) == (4, False)
    assert f"GPU 0: process {os.getpid()} of {Path('/proc/self').owner()} uses it" in said


def test_this_machine_is_really_examined_and_its_findings_are_one_document(capsys):
    code, out = doctored(capsys, "--json")
    document = json.loads(out)
    assert (code, document["blocked"]) in ((0, False), (4, True))
    assert problems("findings", document) == []
    assert all(each["severity"] in ("blocks", "spoils", "note") for each in document["findings"])
