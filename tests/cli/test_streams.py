"""Closed, full and narrow streams, and interrupts, whenever they come."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from tests.cli.conftest import Said

CODE = "from advisor.__main__ import main; main()"
# At a moment of the test's choice: when a module is imported, or when the process ends.
AT_IMPORT = """
import os, signal, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "advisor.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Watch())
"""
AT_EXIT = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"


def ran(*words, before="", **how):
    """A real process: `how` is what `subprocess.run` takes."""
    return subprocess.run(
        [sys.executable, "-c", before + CODE, *words], stderr=subprocess.PIPE, check=False, **how
    )


@pytest.mark.parametrize("before", [AT_IMPORT, AT_EXIT], ids=["while importing", "at the end"])
def test_an_interrupt_ends_quietly_with_130(before):
    done = ran("--version", before=before, stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (130, b"")


def test_a_closed_stdout_is_an_error_and_no_traceback():
    done = ran("workloads", preexec_fn=lambda: os.close(1))
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: stdout: Bad file descriptor")
    assert b"Traceback" not in done.stderr


def test_a_closed_stdout_does_not_matter_to_who_writes_nothing_there(tmp_path):
    out = tmp_path / "plan.sh"
    words = ("export", "bert-base-finetune-bs16", "--out", str(out), "--sharing", "serial")
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path)}
    assert ran(*words, preexec_fn=lambda: os.close(1), env=environment).returncode == 0
    assert out.read_text().startswith("#!")


def test_a_closed_stderr_moves_no_error_to_stdout():
    command = [sys.executable, "-c", CODE, "recommend", "none"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2), check=False
    )
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("words", [["workloads"], ["--help"], ["gpus", "--json"]])
def test_a_full_stdout_is_an_error_and_no_traceback(words, monkeypatch, capsys):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            main(words)
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: stdout: No space left on device")
    assert "Traceback" not in said


def test_a_reader_that_leaves_early_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = ran("workloads", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def encoded(advisor, monkeypatch):  # noqa: ARG001 - it sets up the folders
    """Runs a command line whose stdout has another encoding."""

    def run(encoding, *words):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            with pytest.raises(SystemExit) as end:
                main(list(words))
        return Said(end.value.code or 0, stream.buffer.getvalue().decode(encoding), "")

    return run


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_chart_is_drawn_with_the_characters_that_there_are(encoded, encoding):
    words = ("simulate", "bert-base-finetune-bs16:2", "resnet26-cifar10-bs128")
    said = encoded(encoding, *words, "--at-once", "1")
    assert said.code == 0
    legend = {"ascii": "# runs, . waits", "latin-1": "# runs, · waits", "utf-8": "█ runs, · waits"}
    assert legend[encoding] in said.out


def test_a_piped_table_is_as_wide_as_it_is(advisor, measured, monkeypatch, tmp_path):
    monkeypatch.delenv("COLUMNS")
    folder = tmp_path / "profiles" / "h200-141gb"
    folder.mkdir(parents=True)
    name = "bert-base-finetune-bs16"
    text = (measured / "profiles" / "h200-141gb" / f"{name}.json").read_text()
    (folder / f"{'long' * 40}.json").write_text(text)
    lines = advisor("profiles", "--profiles", tmp_path / "profiles").out.splitlines()
    assert lines[1].startswith("long" * 40)
    assert len(lines) == 2


def test_ranks_are_there_in_a_narrow_terminal(advisor, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = advisor("recommend", "bert-base-finetune-bs16:2").out.splitlines()
    ranks = [line.split()[0] for line in lines if line[:1].isdigit() and "  " in line]
    assert ranks[0] == "1"
    assert len(ranks) >= 3
    assert ranks == sorted(ranks, key=int)
    assert max(map(len, lines)) <= 40


HOSTILE = "a\x1b[31m\a\u202eb\nerror: c"


def test_the_name_of_a_file_cannot_command_a_terminal(advisor, measured, tmp_path):
    folder = tmp_path / "profiles" / "h200-141gb"
    folder.mkdir(parents=True)
    text = (measured / "profiles" / "h200-141gb" / "bert-base-finetune-bs16.json").read_text()
    (folder / f"{HOSTILE}.json").write_text(text)
    said = advisor("profiles", "--profiles", tmp_path / "profiles").out
    assert "a\\x1b[31m\\x07\\u202eb\\nerror: c" in said
    assert not set("\x1b\a\u202e") & set(said)


@pytest.mark.parametrize(
    "words",
    [
        ["recommend", HOSTILE],
        ["recommend", f"./{HOSTILE}.json"],
        ["recommend", "--jobs", f"{HOSTILE}.toml"],
        ["recommend", "--profiles", HOSTILE],
        ["recommend", "--gpu", HOSTILE],
        ["predict", "--sharing", HOSTILE],
        ["simulate", "--trace-in", HOSTILE],
        [HOSTILE],
        ["recommend", f"--{HOSTILE}"],
    ],
)
def test_no_message_commands_a_terminal(advisor, words):
    said = advisor(*words)
    assert said.code == 2
    assert not set("\x1b\a\u202e") & set(said.err)
    assert "\nerror: c" not in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("profile", "--device", "cpu", "mlp-toy-bs32"),
        ("calibrate", "--device", "cpu"),
        ("run", "PLAN", "--device", "cpu"),
    ],
)
def test_from_a_folder_that_is_gone_nothing_is_started_and_it_is_said(tmp_path, words):
    plan, root = tmp_path / "plan.json", Path(__file__).parents[2]
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path), "PYTHONPATH": str(root)}
    written = ("export", "bert-base-finetune-bs16", "--format", "json", "--out", str(plan))
    assert ran(*written, env=environment, stdout=subprocess.DEVNULL).returncode == 0
    (gone := tmp_path / "gone").mkdir()
    asked = (str(plan) if word == "PLAN" else word for word in words)
    done = ran(*asked, env=environment, cwd=gone, preexec_fn=lambda: os.rmdir(gone))  # noqa: PTH106
    assert done.returncode == 2
    assert done.stderr.strip() == b"error: the folder that you are in is gone. Change into another."
