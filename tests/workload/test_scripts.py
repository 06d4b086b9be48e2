"""A training script of the user's as a value, in profiles, job files and lists of runs."""

import json
from dataclasses import asdict, replace
from functools import partial

import pytest

from advisor.errors import InvalidInput
from advisor.measure.shared.strict_record import record
from advisor.workload.job_file import read_jobs
from advisor.workload.spec import Script, Workload
from advisor.workload.store import load_profile, read_profile
from advisor.workload.writing import profile_text
from tests import synthetic

GPU = "h200-141gb"
SCRIPT = Script(
    command=("python", "train.py", "--lr", "0.1"), folder="/home/ada/net", environment={"SEED": "1"}
)


def scripted(name="net", script=SCRIPT):
    """A made-up profile of a script."""
    workload = Workload(
        name=name, source="script", model=name, family=name, batch=64,
        examples_per_epoch=6400, script=script,
    )  # fmt: skip
    return replace(synthetic.profile(), workload=workload)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of profiles: of a script, and of a workload of the zoo."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    (tmp_path / "profiles" / GPU).mkdir(parents=True)
    for each in (scripted(), synthetic.profile()):
        (tmp_path / "profiles" / GPU / f"{each.name}.json").write_text(profile_text(each))
    return tmp_path / "profiles"


def jobs_of(folder, text):
    path = folder / "jobs.toml"
    path.write_text(text)
    return read_jobs(path, partial(load_profile, gpu=GPU, given=folder))


def test_a_profile_carries_how_its_script_is_started(folder):
    profile = read_profile(folder / GPU / "net.json")
    assert profile == scripted()
    assert profile.workload.script == SCRIPT


def test_a_profile_from_before_there_were_scripts_is_still_read(folder):
    path = folder / GPU / "resnet50-imagenet64-bs128.json"
    document = json.loads(path.read_text())
    del document["workload"]["script"]
    path.write_text(json.dumps(document))
    assert read_profile(path) == synthetic.profile()


def test_a_job_file_gives_a_profiled_script_other_arguments(folder):
    first, second, third = jobs_of(
        folder,
        '[[job]]\nprofile = "net"\n'
        '[[job]]\nprofile = "net"\ncommand = ["python", "train.py", "--lr", "0.2"]\n'
        'folder = "elsewhere"\nenvironment = {SEED = "2", WANDB_MODE = "offline"}\n'
        '[[job]]\nprofile = "net"\nenvironment = {SEED = "3"}\n',
    )
    assert first.profile.workload.script == SCRIPT
    assert second.profile.workload.script == Script(
        command=("python", "train.py", "--lr", "0.2"),
        folder=str(folder / "elsewhere"),
        environment={"SEED": "2", "WANDB_MODE": "offline"},
    )
    assert third.profile.workload.script == replace(SCRIPT, environment={"SEED": "3"})
    assert first == second == third  # they train alike, whatever starts them


def test_a_job_file_gives_any_profile_a_command(folder):
    (job,) = jobs_of(
        folder, '[[job]]\nprofile = "resnet50-imagenet64-bs128"\ncommand = ["./train", "a b"]\n'
    )
    assert job.profile.workload.script == Script(command=("./train", "a b"), folder=str(folder))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('command = "python train.py"', "command"),  # words, never a shell's line
        ("command = []", "has a command"),
        ('command = ["python", "\\u0000"]', "no program can be given"),
        ('command = ["a"]\nenvironment = {CUDA_MPS_PIPE_DIRECTORY = "/x"}', "leave it out"),
        ('command = ["a"]\nenvironment = {CUDA_VISIBLE_DEVICES = "1"}', "leave it out"),
        ('command = ["a"]\nenvironment = {"A=B" = "1"}', "names no variable"),
        ('command = ["a"]\nenvironment = {SEED = 1}', "environment"),
        ('folder = "x"', "and it has none"),
    ],
)
def test_a_job_file_cannot_start_what_is_no_command(folder, lines, said):
    with pytest.raises(InvalidInput, match=said):
        jobs_of(folder, f'[[job]]\nprofile = "resnet50-imagenet64-bs128"\n{lines}\n')


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ()}, {"folder": "here"}, {"throughput": "("}, {"throughput": "no group"},
        {"throughput": "(.*)", "to_end": True}, {"command": ("a",) * 10_001},
    ],
)  # fmt: skip
def test_a_script_that_nothing_can_start_is_refused(wrong):
    with pytest.raises(InvalidInput):
        Script(**({"command": ("python",), "folder": "/"} | wrong))


def test_a_script_without_a_command_is_no_script():
    with pytest.raises(InvalidInput, match="has a command"):
        Workload(name="net", source="script", model="net", family="net", batch=1)


def test_bare_numbers_can_be_started_once_a_command_is_named():
    workload = Workload(name="net", source="numbers", model="net", family="net", batch=1)
    with pytest.raises(InvalidInput, match="job file"):
        workload.check_startable()
    replace(workload, script=SCRIPT).check_startable()


def test_a_list_of_runs_hands_a_script_on_whole():
    workload = scripted().workload
    again = record(Workload, json.loads(json.dumps(asdict(workload))), "plans[0].workloads[0]")
    assert (again, again.script) == (workload, SCRIPT)
