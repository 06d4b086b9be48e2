"""The CSV for radT, read back as radT does."""

import argparse
import csv
import shlex
from dataclasses import replace

import pytest

from advisor.launch.exports import radt_text, radt_wants
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests.handed import BERT, RESNET, handed
from tests.launch.golden_exports import PLANS


def of_command(*command, folder="/home/ada/a folder", **environment):
    script = Script(command=command, folder=folder, environment=environment)
    return Job(replace(RESNET.profile, workload=replace(RESNET.profile.workload, script=script)))


def rows(plan):
    return list(csv.DictReader(radt_text(plan).splitlines()))


def begun(row):
    """The script, its folder and its words, as `radt` and `radt run` make them of a row."""
    folder, _, name = row["File"].rpartition("/")
    parser = argparse.ArgumentParser(exit_on_error=False)
    for short, long in (("-l", "--listeners"), ("-c", "--command"), ("-p", "--params")):
        parser.add_argument(short, long)
    given = parser.parse_args(shlex.split(f'-l {row["Listeners"]} -c {name} -p "{row["Params"]}"'))
    return given.command, folder, given.params.split()


@pytest.mark.parametrize("name", ["naive", "serial", "mps", "mig", "equal-instances"])
def test_radt_finds_a_row_for_each_job_and_a_workload_for_what_runs_at_once(name):
    found, plan = rows(PLANS[name]), PLANS[name]
    assert sorted(row["File"] for row in found) == sorted(f"{s.job.name}.py" for s in plan.starts)
    workloads = [int(row["Workload"]) for row in found]
    assert workloads == sorted(workloads)
    assert all(row["Status"] == row["Run"] == "" for row in found)


@pytest.mark.parametrize(
    "words",
    [
        ("--lr", "0.2", "--token", "s3cr3t"),
        ("train", "--amp"),
        ("-b", "64"),
        ("config/a,b.yaml", "lr=0.1"),
        ("--data", "@x:y", "--lr=0.1"),
    ],
)
@pytest.mark.parametrize("program", ["python", "python3", "/usr/bin/python3.11"])
def test_radt_starts_the_script_of_a_job_with_its_words_in_its_folder(program, words):
    plan = handed("naive", [of_command(program, "train.py", *words)])
    (row,) = rows(plan)
    assert begun(row) == ("train.py", "/home/ada/a folder", list(words))
    assert list(radt_wants(plan)) == []


def test_a_script_without_words_is_given_none_by_the_dash_that_radt_has_for_that():
    (row,) = rows(handed("naive", [of_command("python", "/srv/train.py", folder="/srv")]))
    assert (row["File"], row["Params"]) == ("/srv/train.py", "-")


@pytest.mark.parametrize(
    "job",
    [
        of_command("python", "-m", "train"),
        of_command("python", "-u", "train.py"),
        of_command("python"),
        of_command("torchrun", "train.py"),
        of_command("./train.sh"),
        of_command("python", "src/train.py"),
        of_command("python", "my train.py"),
        of_command("python", "train.py", "two words"),
        of_command("python", "train.py", "--name", '"quoted"'),
        of_command("python", "train.py", "--name", "$HOME"),
        of_command("python", "train.py", "--name", ""),
        of_command("python", "train.py", "--amp"),
        of_command("python", "train.py", "--listen=3", "x"),
        of_command("python", "train.py", "-lr", "0.1"),
        of_command("python", "train.py", SEED="1"),
        RESNET,
    ],
)
def test_what_a_row_cannot_say_is_a_placeholder_and_that_is_said(job):
    plan = handed("serial", [job, BERT, job])
    assert rows(plan)[0]["File"] == f"{job.name}.py"
    assert rows(plan)[0]["Params"] == "-"
    (said,) = radt_wants(plan)
    assert said.startswith(f"{job.name}.py, {BERT.name}.py: placeholders. Replace them")
