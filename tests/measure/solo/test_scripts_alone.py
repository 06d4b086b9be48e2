"""``advisor profile -- COMMAND`` as a process of its own."""

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from advisor.workload.store import read_profile
from tests.measure.process import scripts
from tests.measure.shared.real_command import Started
from tests.waiting import PATIENCE_S, until

SCRIPTS = scripts.write(Path(mkdtemp()))
QUICK = ("--device", "cpu", "--folder", str(SCRIPTS))


@pytest.fixture
def command():
    with TemporaryDirectory() as folder:
        started = Started(folder, "-m", "advisor.profiling")
        yield started
        assert not started.processes()


@pytest.mark.exhaustive
def test_a_script_does_not_outlive_a_killed_measurement(command, tmp_path):
    process = command.start(*QUICK, "--out", str(tmp_path), "--", "python", "scaled.py")
    until(lambda: any("scaled.py" in _words(pid)[1:2] for pid in command.processes()))
    for pid in command.processes():
        if "advisor.measure.process" in _words(pid):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    until(lambda: not command.processes())


@pytest.mark.exhaustive
def test_what_is_not_pytorch_is_measured_by_what_it_prints(command, tmp_path):
    printer = "import time\nwhile True: time.sleep(0.01); print('rate 400 examples/s')"
    out = ("--out", str(tmp_path), "--batch", "4")
    rate = ("--name", "rate", "--throughput", "rate ([0-9]+)")
    assert command.finish(*QUICK, *out, *rate, "--", "python", "-c", printer)[0] == 0
    assert read_profile(tmp_path / "rate.json").step_s == pytest.approx(0.01)
    code, said = command.finish(*QUICK, *out, *rate, "--", "sh", "-c", "echo no >&2; exit 3")
    assert code == 1
    assert "sh ended with exit status 3; it said: no" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", "a"), "give its command after --"),
        (("mlp-toy", "--name", ""), "--name describes a script"),
        (("mlp-toy", "--steps-per-epoch", "0"), "--steps-per-epoch describes a script"),
        (("mlp-toy-bs32", "--", "python"), "a script is profiled by itself"),
        (("--env", "A", "--", "python"), "write NAME=VALUE"),
        (("--env", "CUDA_MPS_PIPE_DIRECTORY=/x", "--", "python"), "leave it out"),
        (("--name", "a b", "--", "python"), "names no workload"),
        (("--name", "", "--", "python"), "names no workload"),
        (("--", "python", "trän 1.py"), "say --name NAME"),
        (("--batch", "0", "--", "python"), "batch must be at least 1, got 0"),
        (("--throughput", "(", "--", "python"), "no regular expression"),
    ],
)
def test_words_that_describe_no_script_are_wrong_use(words, said, tmp_path, capsys):
    from advisor.measure.solo.profile_command import run
    from tests.refusals import refused

    code, line = refused(run, ["--device", "cpu", "--out", str(tmp_path), *words], capsys)
    assert code == 2
    assert said in line


def _words(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []
