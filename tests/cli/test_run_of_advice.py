"""What ``recommend --json`` wrote starts what the job file says."""

import json

import pytest

from advisor.measure.shared.run_list_file import read_plans
from advisor.validate.executed_plan import saved_plan
from tests.cli.conftest import GPU
from tests.cli.test_export_command import BERT, RESNET
from tests.cli.test_minimal_profiles import own

__all__ = ["own"]


@pytest.fixture
def advised(advisor, tmp_path):
    """Advice about the jobs of a job file, whose entries are given, in a file."""

    def recommend(*entries, words=()):
        (tmp_path / "jobs.toml").write_text("".join(f"[[job]]\n{entry}\n" for entry in entries))
        said = advisor("recommend", "--jobs", tmp_path / "jobs.toml", "--json", *words)
        assert said.code == 0
        (tmp_path / "advice.json").write_text(said.out)
        return tmp_path / "advice.json"

    return recommend


def _entry(rate, more=""):
    return (
        f'profile = "{RESNET}"\ncommand = ["python3", "train.py", "--lr", "{rate}"]\n'
        f'folder = "exp dir"\n{more}'
    )


def test_of_advice_each_job_starts_as_the_job_file_says_also_two_of_one_profile(
    advisor, advised, tmp_path
):
    other = f'profile = "{RESNET}"\nepochs = 3\nexamples_per_epoch = 1280'
    path = advised(_entry(0.1, more='environment = {SEED = "7"}'), other, _entry(0.2))
    said = advisor("run", path).out
    ours = [
        line.strip() for line in said.splitlines() if "$ " in line and "mps-control" not in line
    ]
    assert [line.startswith("$ python3 train.py --lr") for line in ours] == [True, False, True]
    assert (ours[0][-3:], ours[2][-3:]) == ("0.1", "0.2")
    assert ours[1].endswith("--steps 30")
    assert said.count(f"folder: {tmp_path / 'exp dir'}\n") == 2
    assert said.count("  SEED=7\n") == 1


def test_advice_starts_by_collocation_what_the_job_file_says(advised):
    path = advised(_entry(0.1), f'profile = "{RESNET}"', _entry(0.2))
    for plan in read_plans(path, GPU):
        scripts = [each.script for each in plan.workloads]
        assert [each and each.command[-1] for each in scripts] == ["0.1", None, "0.2"]


def test_runs_of_the_same_jobs_with_other_scripts_are_other_runs(advised):
    ids = {read_plans(advised(_entry(rate), _entry(0.3)), GPU)[0].id for rate in (0.1, 0.2)}
    assert len(ids) == 2


def test_advice_about_more_jobs_than_are_ranked_starts_what_the_job_file_says(advisor, advised):
    path = advised(_entry(0.1, more="copies = 5"), _entry(0.2, more="copies = 5"))
    said = advisor("run", path).out
    assert [said.count(f"$ python3 train.py --lr {rate}\n") for rate in (0.1, 0.2)] == [5, 5]


@pytest.mark.usefixtures("own")
def test_a_job_of_bare_numbers_runs_by_the_command_that_the_job_file_names(advisor, advised):
    path = advised('profile = "my-job"\ncommand = ["python3", "train.py"]')
    said = advisor("run", path)
    assert (said.code, said.err) == (0, "")
    assert "$ python3 train.py\n" in said.out


def test_advice_as_it_was_written_before_jobs_stood_in_it_is_still_read(advisor, advised):
    path = advised(_entry(0.1), f'profile = "{BERT}"\nepochs = 3')
    document = json.loads(path.read_text())
    for plan in document["plans"]:
        plan["jobs"] = [{"job": each["job"]} for each in plan["jobs"]]
    path.write_text(json.dumps(document))
    jobs = saved_plan(path, 1).jobs
    assert [(job.name, job.epochs) for job in jobs] == [(RESNET, 1.0), (BERT, 3.0)]
    assert advisor("run", path).code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"script": {"folder": "/x"}}, "'script.command' is missing. Ask again"),
        ({"epochs": "many"}, "epochs must be a number, got 'many'. Ask again"),
    ],
)
def test_advice_whose_jobs_were_changed_is_refused(advisor, advised, change, said):
    path = advised(_entry(0.1))
    document = json.loads(path.read_text())
    document["plans"][0]["jobs"][0] |= change
    path.write_text(json.dumps(document))
    found = advisor("run", path)
    assert (found.code, found.out) == (2, "")
    assert f"advice.json: {RESNET}: {said}" in found.err


def test_advice_about_many_jobs_keeps_its_power_cap(advised):
    path = advised(_entry(0.1, more="copies = 9"), words=("--power-cap", 400))
    assert saved_plan(path, 1).power_cap_w == 400
