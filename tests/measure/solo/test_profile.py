"""`advisor profile`: jobs measured alone, as a user starts it, on a CPU."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from advisor.files.writing import record_line
from advisor.measure import pace, process
from advisor.measure import profile as profile_command
from advisor.measure.bench import Bench, Crew, MpsSession
from advisor.measure.device import Device, Origin
from advisor.measure.pace import StepsTaken, Stopwatch, is_steady
from advisor.measure.profile import at_check, mps_probe
from advisor.workload.profile import Window
from advisor.workload.spec import Script, Workload
from advisor.workload.store import read_profile
from tests import synthetic
from tests.lean import LEAN_PATH
from tests.measure.process import scripts
from tests.measure.shared.real_command import Started
from tests.refusals import refused
from tests.waiting import PATIENCE_S

QUICK = ("--device", "cpu", "--no-probe")


@pytest.fixture
def command():
    """``advisor profile``; a short path, since sockets go there."""
    with TemporaryDirectory(dir="/tmp") as folder:
        started = Started(folder, "-m", "advisor", "profile")
        yield started
        started.clear()


@pytest.fixture
def quick(monkeypatch):
    """Looks at a job for a moment: how long a measurement takes is no law."""
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    monkeypatch.setattr(profile_command, "_TIMING", profile_command.Timing(0.0, 0.05, 2, 0.05))
    for name in ("_STRETCH_S", "_LEAST_LOOK_S", "_LONGEST_SETTLING_S"):
        monkeypatch.setattr(pace, name, 0.1)


@pytest.mark.usefixtures("quick")
def test_a_batch_with_wrong_names_profiles_the_others(tmp_path, capsys):
    out = tmp_path / "profiles"
    words = ("mlp-toy-bs32", "resnet999-cifar10-bs32", "--out", out, *QUICK)
    code, said = refused("profile", words, capsys)
    assert code == 1
    assert "resnet50-cifar10-bs32" in said, "names the near ones"
    assert [each.name for each in out.iterdir()] == ["mlp-toy-bs32.json"]

    profile = read_profile(out / "mlp-toy-bs32.json")
    assert (profile.name, profile.gpu) == ("mlp-toy-bs32", "cpu")
    assert 1 <= len(profile.windows) <= 15, "more where they disagree, few where rounds are long"
    assert profile.memory.allocated_mib > 0
    assert 0 < profile.host_cpu_share < 1.5
    assert 50 < profile.host_memory_mib < 50_000
    assert (profile.host_s, profile.gpu_s, profile.trace, profile.mps) == (None,) * 4
    assert (profile.power_w, profile.energy_j, profile.counters) == (None,) * 3
    assert profile.took.windows_s >= sum(window.seconds for window in profile.windows)
    assert (profile.took.trace_s, profile.took.mps_s, profile.took.limits_s) == (None,) * 3
    assert profile.provenance.command.startswith("advisor profile mlp-toy-bs32")
    words = ("mlp-toy-bs32", "--skip-existing", "--out", out, *QUICK)
    assert refused("profile", words, capsys) == (0, "")


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)]
)
def test_an_interrupted_batch_leaves_neither_half_a_profile_nor_anything_else(
    how, command, tmp_path
):
    process = command.start("mlp-toy-bs32", "--out", str(tmp_path / "out"), *QUICK)
    assert process.stderr.readline() == "1/1 mlp-toy-bs32\n"
    process.send_signal(how)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert not (tmp_path / "out").exists()
    command.assert_nothing_is_left()


def test_an_interrupt_while_modules_are_imported_is_an_interrupt_like_any_other(
    monkeypatch, capsys
):
    def interrupted(_module):
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "import_module", interrupted)
    monkeypatch.setattr(process, "_interrupted_by_signals", nullcontext)
    monkeypatch.setattr(process.threading, "Thread", lambda **_: SimpleNamespace(start=int))
    assert process.run_inner("module:function", "{}") == process.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ((), "name a workload"),
        (("mlp-toy-bs2", "--batch-size", "4"), "--batch-size"),
        (("--timm", "resnet18"), "--resolution"),
        (("mlp-toy-bs2", "--gpu", "h200-141gb"), "cpu"),
        (("mlp-toy-bs2", "--deadline", "0"), "above"),
        (("mlp-toy-bs2", "--cores", "4096"), "4096"),
        (("--name", "a"), "command after --"),
        (("mlp-toy-bs32", "--", "python"), "profiled alone"),
        (("--env", "A", "--", "python"), "NAME=VALUE"),
        (("--env", "CUDA_MPS_PIPE_DIRECTORY=/x", "--", "python"), "Leave it out"),
        (("--measure-env", "A=1"), "command after --"),
        (("--seconds-per-step", "[0-9", "--", "./a"), "one group"),
        (("--name", "a b", "--", "python"), "a b"),
        (("--", "python", "trän 1.py"), "--name NAME"),
        (("--batch-size", "0", "--", "./a"), "batch"),
        (("--throughput", "(", "--", "python"), "("),
        (("python", "train.py", "--lr", "0.1"), "-- python train.py --lr 0.1"),
    ],
)
def test_words_that_make_no_sense_are_wrong_use_with_a_remedy(words, remedy, tmp_path, capsys):
    options = ["--device", "cpu", "--out", tmp_path]
    code, said = refused("profile", [*options, *words], capsys)
    assert (code, remedy in said) == (2, True), said
    assert list(tmp_path.iterdir()) == []


def kept_profile(tmp_path, folder, *command):
    """The file of a profile that `command` in `folder` was measured for before."""
    start = Script(command=command, folder=str(folder))
    task = replace(synthetic.profile().workload, name="train", source="script", script=start)
    path = tmp_path / "train.json"
    path.write_text(record_line(replace(synthetic.profile(), workload=task, gpu="cpu")))
    return path


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("b", ("--", "python", "train.py")),
        ("a", ("--", "python", "train.py", "--lr", "1")),
        ("a", ("--name", "train", "--", "bash", "run.sh")),
    ],
)
def test_a_profile_of_another_folder_or_command_is_not_replaced(folder, words, tmp_path, capsys):
    path = kept_profile(tmp_path, "/a", "python", "train.py", "--token", "hidden")
    before = path.read_text()
    where = ("--device", "cpu", "--out", tmp_path, "--folder", f"/{folder}")
    for more in ((), ("--skip-existing",)):  # not even left out, as if it were this one
        code, text = refused("profile", (*where, *more, *words), capsys)
        assert code == 2
        assert all(part in text for part in ("in /a", f"in /{folder}", "--name NAME"))
        assert "hidden" not in text
    assert path.read_text() == before


def test_a_bundled_workload_does_not_replace_a_script_nor_a_script_a_shipped_profile(
    tmp_path, capsys, monkeypatch
):
    path = kept_profile(tmp_path, "/a", "python", "train.py")
    (tmp_path / "mlp-toy-bs32.json").write_bytes(path.read_bytes())
    code, text = refused("profile", ("--device", "cpu", "--out", tmp_path, "mlp-toy-bs32"), capsys)
    assert (code, "--out DIR" in text) == (2, True)
    monkeypatch.setattr(profile_command, "beside_package", lambda _kind: tmp_path / "shipped")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    (tmp_path / "shipped" / "cpu").mkdir(parents=True)
    shipped = replace(synthetic.profile("mlp-toy-bs32"), gpu="cpu")
    (tmp_path / "shipped" / "cpu" / "mine.json").write_text(record_line(shipped))
    words = ("--device", "cpu", "--name", "mine", "--", "python", "train.py")
    code, text = refused("profile", words, capsys)
    assert (code, "--name NAME" in text) == (2, True)


def test_a_variable_for_the_measurement_is_not_kept_for_the_training(tmp_path, monkeypatch, capsys):
    seen = []

    def measured(job, *_, **__):
        seen.append(job.script.environment)
        return replace(synthetic.profile(), workload=replace(job, batch=7), gpu="cpu")

    monkeypatch.setattr(profile_command, "profile_alone", measured)
    words = "--env SEED=1 --measure-env SEED=2 --measure-env WANDB_MODE=disabled -- python train.py"
    where = ("--device", "cpu", "--out", tmp_path)
    assert refused("profile", (*where, *words.split()), capsys)[0] == 0
    kept = read_profile(tmp_path / "train.json").workload
    assert seen == [{"SEED": "2", "WANDB_MODE": "disabled"}]
    assert (kept.script.environment, kept.batch) == ({"SEED": "1"}, 7)


def test_the_command_that_watches_a_measurement_does_not_load_torch():
    code = "import sys, advisor.measure.profile; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ("13", "0"),
        *(
            pytest.param(*each, marks=pytest.mark.exhaustive)
            for each in (("4", "0"), ("9", "0"), ("40", "0"), ("40", "3"))
        ),
    ],
)
def test_a_training_that_ends_before_it_is_measured_is_measured_by_all_its_steps(
    steps, status, command, tmp_path
):
    folder = scripts.write(tmp_path / "scripts")
    words = ("--device", "cpu", "--folder", str(folder), "--out", str(tmp_path))
    code, said = command.finish(*words, "--", "python", "short.py", steps, status)
    if (steps, status) in (("4", "0"), ("40", "3")):
        assert code == 1
        assert ("for longer" if status == "0" else "exit status 3") in said
    else:
        assert code == 0, said
        profile = read_profile(tmp_path / "short.json")
        assert profile.step_s == pytest.approx(0.05, rel=0.3)
        assert sum(window.steps for window in profile.windows) < int(steps)
        command.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_what_is_not_pytorch_is_measured_by_what_it_prints(command, tmp_path):
    printer = "import time\nwhile True: time.sleep(0.01); print('rate 400 examples/s')"
    words = f"--device cpu --out {tmp_path} --batch-size 4 --name".split()
    words = ("--throughput", "rate ([0-9]+)", *words)
    assert command.finish(*words, "rate", "--", "python", "-c", printer)[0] == 0
    assert read_profile(tmp_path / "rate.json").step_s == pytest.approx(0.01)
    code, said = command.finish(*words, "no", "--", "sh", "-c", "echo no >&2; exit 3")
    assert code == 1
    assert "exit status 3" in said


H200 = Device("cuda", "GPU-0", "h200-141gb", "NVIDIA H200", "580.0")


def test_a_pace_is_steady_when_two_stretches_in_a_row_agree():
    assert not any(map(is_steady, ([], [1.0], [1.0, 1.04], [1.0, 1.0, 1.1])))
    assert is_steady([2.0, 1.0, 1.02])


CORES = tuple(sorted(os.sched_getaffinity(0)))


def bench(session):
    origin = Origin(session.device, "advisor profile", len(CORES))
    crew = Crew(session.device.kind, session.folder)
    return Bench(session=session, crew=crew, origin=origin, cores=CORES)


def test_where_mps_does_not_start_there_is_no_probe_and_a_line_says_why(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("PATH", "")
    profile = synthetic.profile("mlp-toy-bs32")
    assert mps_probe(profile, (), bench(MpsSession(H200, tmp_path)), Stopwatch()) is None
    assert "nvidia-cuda-mps-control" in capsys.readouterr().err


# Each process notes when it starts and when it ends. An optimizer would take as long to load again
# as torch.
TRAINS = """
import atexit, os, time, torch
from pathlib import Path
import advisor
def note(what):
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(what + "\\n")
note("starts")
atexit.register(note, "ends")
while True:
    time.sleep(0.001)
    advisor.step()
"""


class NoDaemon(MpsSession):
    """The session of a CPU, whose contexts have as many SMs as their limit leaves an H200."""

    def __init__(self, folder):
        super().__init__(Device("cpu", None, "h200-141gb", "NVIDIA H200", None), folder)

    def switch_to(self, sharing):
        pass

    def proved_clients(self, sharing, pids):
        assert sharing.under_mps
        assert len(set(pids)) == len(pids)
        return len(pids)

    def close(self):
        pass


TAKEN = (
    StepsTaken(
        0.0, {"completed_at": [0.001 * n for n in range(1, 50)], "checks": [], "between": []}
    ),
)


@pytest.mark.parametrize("held_mib", [1000.0, pytest.param(80_000.0, marks=pytest.mark.exhaustive)])
@pytest.mark.exhaustive
def test_a_script_is_started_for_all_limits_at_once_unless_it_would_not_fit(
    held_mib, tmp_path, monkeypatch
):
    def limited(limit_pct, _sms, windows):
        return SimpleNamespace(limit_pct=limit_pct, sms=0, step_s=0.001, windows=windows)

    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    monkeypatch.setattr(profile_command, "LimitedRun", limited)
    monkeypatch.setattr(profile_command, "PROBE_LIMITS_PCT", (10.0, 50.0))
    monkeypatch.setattr(
        profile_command, "_PROBE_TIMING", profile_command.Timing(0.0, 0.02, 3, 0.01, 0.1)
    )
    notes, own = tmp_path / "notes", tmp_path / "near" / "own"
    own.mkdir(parents=True)
    script = Script(
        command=("python", "-c", TRAINS), folder=str(own), environment={"NOTES": str(notes)}
    )
    task = Workload(name="it", source="script", model="it", family="it", batch=1, script=script)
    alone = synthetic.profile(host_s=0.001, gpu_s=0.0008, memory_mib=held_mib)
    alone = replace(alone, workload=task)
    probe = mps_probe(alone, TAKEN, bench(NoDaemon(tmp_path)), Stopwatch())
    assert probe.unlimited.limit_pct == 100
    assert [run.limit_pct for run in probe.limited] == [10, 50]
    at_once = notes.read_text().split()[:3] == ["starts"] * 3
    assert at_once == (held_mib == 1000.0)


HOST_BOUND = replace(synthetic.profile(), host_s=0.01, gpu_s=0.002, trace=None, host_check_s=1e-3)


@pytest.mark.parametrize(
    ("host_s", "gpu_s", "step_s"),
    [(0.01, 0.002, 0.005), (None, None, 0.005), (0.01, 0.02, 0.01), (0.01, 0.006, 0.006)],
)
def test_windows_are_brought_to_one_pace_of_the_core_as_far_as_the_host_sets_it(
    host_s, gpu_s, step_s
):
    slow, usual = Window(1.0, 100, check_s=8e-3), Window(0.5, 100, check_s=1e-3)
    profile = replace(HOST_BOUND, host_s=host_s, gpu_s=gpu_s)
    first, second = at_check(profile, (slow, usual))
    assert first.step_s == pytest.approx(step_s)
    assert second == usual
    assert (first.steps, first.check_s) == (100, 8e-3)


def test_a_step_that_a_limit_slows_does_not_follow_the_core():
    slowed, usual = Window(2.0, 100, check_s=8e-3), Window(1.1, 100, check_s=8e-3)
    profile = replace(HOST_BOUND, windows=(Window(1.0, 100),))
    first, second = at_check(profile, (slowed, usual), limited=True)
    assert first == slowed
    assert second.step_s == pytest.approx(0.0055)
