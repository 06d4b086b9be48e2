"""Every command in README and docs runs, page by page in the order of the page, as a user would."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.cli import main
from advisor.files.writing import record_line, write_whole
from advisor.plan.fleet_search import FleetSearch
from research import public_traces
from tests import gpu_machine
from tests.cli.conftest import few_lessons, measured
from tests.cli.test_mig_mode import PARTS
from tests.fitted import folds_fitted_once
from tests.hardware.conftest import install
from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.made_up_traces import write_helios, write_pai, write_philly

__all__ = ["few_lessons", "folds_fitted_once", "install", "measured"]

STARTED = set()  # commands that train to the end: once, though several pages have them

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Blocks in the order of a page: fenced with their language, or indented as code.
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```|((?:^ {4}\S[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`(advisor (?=[a-z-])[^`]*)`")
CORES = ",".join(map(str, sorted(os.sched_getaffinity(0))))  # of this machine
PUBLIC_TRACES = ["python", "-m", "research.public_traces"]
ASSIGNED = re.compile(r"\w+=")
# A word that a reader replaces.
PLACE = re.compile(r"\b(?:(?!MIG|UUID)[A-Z]{2,}|N)\b|\.\.\.")
ITS_PYTHON = "~/env/bin/python"  # that of the environment of the reader's script
# Why the commands of other programs are not run.
NOT_RUN = {
    "changes the shell": {".", "cd", "export"},
    "needs Slurm, MPS, a container, a cluster or a GPU": {
        *("bash", "docker", "echo", "kubectl", "nvidia-cuda-mps-control", "nvidia-smi", "scancel"),
    },
    "installs, as root or from the network": {"git", "make", "pip", "python3", "sudo", "uv"},
    "needs files of the reader": {"cp", "python"},
    "goes on from the line before": {"-p"},
}
OTHERS = set().union(*NOT_RUN.values())

TRAIN = """
import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--compile", action="store_true")
rate = parser.parse_args().lr or 0.1
network = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(network.parameters(), lr=rate)
data = torch.utils.data.TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
for epoch in range(2):
    for inputs, labels in torch.utils.data.DataLoader(data, batch_size=64):
        time.sleep(0.01)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
"""
PRINTS = "import time\nfor _ in range(2000):\n    time.sleep(0.02)\n    print({!r}, flush=True)\n"
FILES = {
    "train.py": TRAIN,
    "evolve.py": PRINTS.format("50 candidates/s"),
    "keras_train.py": PRINTS.format("20ms/step"),
    "history.csv": "timestamp, name, utilization.gpu [%], memory.used [MiB]\n"
    + "".join(f"2026-05-01 12:00:{at}, NVIDIA H200, 83 %, 5300 MiB\n" for at in range(10, 40)),
}


def of(path):
    return str(path.relative_to(ROOT))


def steps(path):
    """Return the steps of a reader of the page, in its order: kind and text.

    ``"line"`` is a line of shell, ``"span"`` a command in a sentence or table, and ``"toml"`` or
    ``"json"`` a block that the reader writes to a file.
    """
    text, end = path.read_text().replace("\\\n", " "), 0
    for match in [*BLOCK.finditer(text), None]:
        between = text[end : match.start() if match else None]
        yield from (("span", span) for span in SPAN.findall(between))
        if match is None:
            return
        end, (language, fenced, indented) = match.end(), match.groups()
        block = indented if fenced is None else fenced
        if language in {"sh", "bash"} or block.split()[0] in {"advisor", *OTHERS}:
            yield from (("line", line) for line in filter(None, map(str.strip, block.split("\n"))))
        elif language in {"toml", "json"}:
            yield language, block


@pytest.fixture
def machine(monkeypatch):
    """A folder of a user on a machine with a GPU, who has a script; a short path, for sockets."""
    with TemporaryDirectory(dir="/tmp") as path, gpu_machine.installed(monkeypatch, Path(path)):
        folder = Path(path, "home")
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        write_philly(folder / "trace-data")
        write_helios(folder / "Venus")
        write_pai(folder / "pai")
        monkeypatch.chdir(folder)
        yield folder


@pytest.fixture
def brief_search(monkeypatch):
    """The search for many jobs ends early; how good its plans are others test."""

    def init(self, problem, pools, effort, original=FleetSearch.__init__):
        original(self, problem, pools, effort / 100)

    monkeypatch.setattr(FleetSearch, "__init__", init)


def prepare(path, folder):
    """Give the user what an earlier page made: the profile of a script, and bare numbers."""
    text = path.read_text()
    if not re.search(r"-- \S*python train\.py", text):
        own = folder.parent / "data/advisor/profiles" / gpu_machine.GPU / "train.json"
        write_whole(own, record_line(gpu_machine.script_profile(folder)))
    if "my-job.json" in text and "--name my-job" not in text:
        numbers = dict(steps(ROOT / "docs" / "bare-numbers.md"))["json"]
        (folder / "my-job.json").write_text(numbers)


def run(line, capfd):
    """Run a command line in this process; return its exit code, and what it printed."""
    here = {"0-15": CORES, ITS_PYTHON: sys.executable}
    words = [here.get(word, word) for word in shlex.split(line, comments=True)[1:]]
    words, _, file = (words[:-2], ">", words[-1]) if ">" in words else (words, "", "")
    try:
        main(words)
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    printed = capfd.readouterr()
    if file:
        Path(file).write_text(printed.out)
    return code, printed.out + printed.err


def check_options(words, capfd):
    """See that a command with a place for a reader's word exists, and has the options."""
    code, printed = run(f"advisor {words[1]} --help", capfd)
    assert code == 0
    options = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
    assert [option for option in options if option not in printed] == []


@pytest.mark.usefixtures("few_lessons", "brief_search")
@pytest.mark.parametrize("path", PAGES, ids=of)
def test_the_commands_of_a_page_run_one_after_another(
    path, machine, measured, install, capfd, monkeypatch
):
    prepare(path, machine)
    if "MIG-UUID" in path.read_text():
        install(FakeLibrary(FakeGpu(mig=(1, 1), instances=PARTS)))
    done = []
    for kind, line in steps(path):
        if kind == "toml":
            (machine / "jobs.toml").write_text(line)
        words = shlex.split(line, comments=True) if kind in {"line", "span"} else [""]
        if words[:3] == PUBLIC_TRACES:
            assert public_traces.main(words[3:]) == 0
        if words[0] != "advisor" or words in done or (*words,) in STARTED:
            continue
        done.append(words)
        if "--apply" in words:
            STARTED.add((*words,))
        if any(map(PLACE.search, words)) or (kind == "span" and len(words) == 2):
            check_options(words, capfd)
            continue
        with monkeypatch.context() as patch:
            if words[1] in {"fit", "evaluate"}:  # few made-up runs: all shipped ones take minutes
                patch.setenv("ADVISOR_PROFILES", str(measured / "profiles"))
            code, printed = run(line, capfd)
        blocked = words[1] == "doctor" and code == 4  # by this machine, and it says why
        large = words[1] == "predict" and code == 3 and "DOES NOT FIT" in printed
        assert code == 0 or blocked or large, f"{line}\n{printed}"


@pytest.mark.parametrize("path", PAGES, ids=of)
def test_other_shell_lines_are_valid_and_there_is_a_reason_not_to_run_them(path):
    for _, line in (step for step in steps(path) if step[0] == "line"):
        words = [word for word in shlex.split(line, comments=True) if not ASSIGNED.match(word)]
        assert words[0] == "advisor" or words[0] in OTHERS
    for language, text, _ in BLOCK.findall(path.read_text()):
        if language in {"sh", "bash"}:
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)
