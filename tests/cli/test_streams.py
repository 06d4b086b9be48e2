"""Streams that are closed, full or narrow; interrupts; imports; and the page as a process."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest

from advisor.cli import main
from advisor.prediction import engine
from tests.cli.conftest import BERT, GPU, PROFILES
from tests.waiting import PATIENCE_S, until

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


def test_a_closed_stream_is_an_error_and_a_reader_that_leaves_early_is_none():
    done = ran("workloads", preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr[:14]) == (1, b"error: stdout:")
    done = ran("recommend", "none", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (2, b"")
    reading, writing = os.pipe()
    os.close(reading)
    done = ran("workloads", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [["workloads"], ["--help"], ["gpus", "--json"]])
def test_a_full_stdout_is_an_error_and_no_traceback(words, monkeypatch, capsys):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            main(words)
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith("error: stdout:")


HOSTILE = "a\x1b[31m\a\u202eb\nerror: c"


LONG = "a" * 300
REFUSED_NAMES = [
    *("NAME", "recommend NAME", "recommend ./NAME.json", "recommend NAME.py", "recommend --NAME"),
    *("recommend --jobs NAME.toml", "recommend --gpu NAME", "recommend --profiles NAME"),
    *("recommend --models NAME", "predict --sharing NAME", "fit --profiles NAME"),
    *("init jobs --out NAME", "run NAME", "stop NAME", "stop NAME/NAME.json", "stop NAME\0"),
    "export --sharing mps --out NAME mlp-toy-bs32",
]


@pytest.mark.parametrize("words", REFUSED_NAMES)
def test_a_name_that_commands_a_terminal_or_is_too_long_is_refused_in_plain_signs(
    advisor, monkeypatch, tmp_path, words
):
    monkeypatch.chdir(tmp_path)
    for name in (HOSTILE, LONG):
        said = advisor(*(word.replace("NAME", name) for word in words.split(" ")))
        written = words.startswith(("init", "export")) and name is HOSTILE
        assert written or said.code == 2, said
        assert not set("\x1b\a\u202e") & set(said.err)
        assert "\nerror: c" not in said.err
        assert name is HOSTILE or LONG[:100] in said.err.replace("\n", "")


def test_no_file_name_in_an_answer_commands_a_terminal(advisor, measured, tmp_path):
    text = (measured / "profiles" / GPU / f"{BERT}.json").read_text()
    (tmp_path / f"{HOSTILE}.json").write_text(text)
    assert not set("\x1b\a\u202e") & set(advisor("profiles", "--profiles", tmp_path).out)


COMMAND = re.compile(r"`[^`]+`|advisor [a-z]+ .*$", re.M)


@pytest.mark.parametrize(
    ("words", "least"),
    [
        (("recommend", "--jobs", "JOBS", "--details"), 2),
        (("recommend", "--jobs", "GANG", "--gpus", 2, "--no-root"), 1),
        (("init",), 3),
    ],
)
def test_a_terminal_breaks_no_line_inside_of_a_command(
    advisor, tmp_path, monkeypatch, words, least
):
    entry = f'[[job]]\nprofile = "{BERT}"\ngpus = {{}}\ncommand = "true"\n'
    for name, gpus in (("JOBS", 1), ("GANG", 2)):
        (tmp_path / name).write_text(entry.format(gpus) + entry.format(1))
    words = [tmp_path / word if word in ("JOBS", "GANG") else word for word in words]
    monkeypatch.setenv("COLUMNS", "")
    commands = {each.rstrip() for each in COMMAND.findall(advisor(*words).out)}
    assert len(commands) >= least
    for columns in (20, 66):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = advisor(*words).out.splitlines()
        assert [each for each in commands if not any(each in line for line in lines)] == []


HEAVY = {"torch", "timm", "pandas", "sklearn", "streamlit", "altair", "numba"}


COMPLETING = {
    "_ADVISOR_COMPLETE": "complete_bash",
    "COMP_WORDS": "advisor recommend ",
    "COMP_CWORD": "2",
}


@pytest.mark.parametrize(
    ("words", "variables", "banned"),
    [
        (["validate", "-h"], {}, {"numpy", "rich"}),
        (["recommend"], {}, set()),
        ([], COMPLETING, {"numpy", "rich"}),
    ],
    ids=["help", "recommend", "completion"],
)
def test_a_command_imports_nothing_heavy(words, variables, banned, measured):
    engine.load()  # compiled once
    code = (
        "import sys\nfrom advisor.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    where = {"ADVISOR_PROFILES": f"{measured}/profiles", "ADVISOR_MODELS": f"{measured}/models"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | where | variables,
    )
    assert not {name.partition(".")[0] for name in done.stderr.split()} & (HEAVY | banned)
    assert not variables or set(done.stdout.split()) == PROFILES.keys()


def test_the_page_is_served_to_this_machine_until_it_is_interrupted():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = []

    def answered():
        url = f"http://127.0.0.1:{port}/_stcore/health"
        with suppress(URLError, ConnectionError), build_opener(ProxyHandler({})).open(url) as reply:
            said.append(reply.read())
        return said

    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "app", "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(answered)
    finally:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=PATIENCE_S)
    assert said == [b"ok"]
    assert str(port) in out
    assert "Traceback" not in err
