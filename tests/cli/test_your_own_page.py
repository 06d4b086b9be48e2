"""What docs/your-own-train-py.md tells users to type, typed, with a CPU in place of a GPU."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.workload.measured import Memory
from advisor.workload.store import read_profile
from advisor.workload.writing import profile_text, write_whole
from tests.cli.conftest import GPU

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-train-py.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
SCRIPT = """
import sys, torch
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
network = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(network.parameters(), lr=float(sys.argv[2]))
while True:
    for inputs, labels in torch.utils.data.DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
"""


@pytest.fixture
def profiled(advisor, tmp_path, monkeypatch):
    """A folder with train.py, profiled by the page's first command, and the command line."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    first = next(words for words in COMMANDS if words[0] == "profile")
    said = advisor("profile", "--device", "cpu", *first[1:])
    assert said.code == 0
    return advisor


@pytest.mark.exhaustive  # a notebook goes the same way
def test_the_whole_way_of_a_script_is_as_the_page_says(profiled, tmp_path):
    own = tmp_path / "nobody" / "advisor" / "profiles"
    measured = read_profile(own / "cpu" / "train.json")
    assert measured.workload.script.command == ("python", "train.py", "--lr", "0.1")
    assert (measured.workload.batch, measured.workload.steps_per_epoch) == (16, 4)
    # As if that had been measured on a GPU.
    memory = Memory(allocated_mib=900.0, reserved_mib=1000.0, device_mib=1500.0)
    on_gpu = replace(measured, gpu=GPU, memory=memory, gpu_s=measured.step_s / 2)
    write_whole(own / GPU / "train.json", profile_text(on_gpu))
    typed = {}
    more = {"recommend": [], "validate": ["--dry-run"], "export": [], "run": []}
    for words in COMMANDS:
        if words[0] in more:
            kept = [word for word in words if word != "--apply"]
            typed[words[0]] = profiled(*kept, *more[words[0]])
            assert typed[words[0]].code == 0, (words, typed[words[0]].err)
    assert "train" in typed["recommend"].out
    assert typed["validate"].out.count("$ python train.py --lr 0.1") >= 3
    assert str(tmp_path) in (tmp_path / "plan.json").read_text()
    assert "train.py --lr 0.1" in typed["run"].out + typed["run"].err
    (jobs,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    Path("jobs.toml").write_text(jobs)
    lines = profiled("export", "--jobs", "jobs.toml", "--sharing", "naive").out
    assert f"env -C {tmp_path} SEED=3 python train.py --lr 0.2" in lines


def test_every_command_of_the_page_is_one_that_there_is(advisor):
    for name in {words[0] for words in COMMANDS}:
        assert advisor(name, "--help").code == 0


def test_the_page_goes_the_whole_way_in_its_order():
    way = ["doctor", "calibrate", "profile", "recommend", "validate", "export", "run", "fit"]
    assert [words[0] for words in COMMANDS][: len(way)] == way
