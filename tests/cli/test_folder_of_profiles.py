"""Profiles lie where `advisor profile --out` left them: right in a folder that the user names."""

import json
from pathlib import Path

import pytest

from advisor.workload.store import profile_paths, profiled_gpus

H100 = Path(__file__).parents[2] / "profiles" / "h100-sxm-80gb"
JOB = "bert-base-finetune-bs16"


@pytest.fixture
def folder(tmp_path):
    """A profile of an H100 under a name of its own, with a plan and a broken file beside it."""
    made = json.loads((H100 / f"{JOB}.json").read_text())
    made["workload"]["name"] = "mine"
    found = tmp_path / "measured"
    found.mkdir()
    (found / "mine.json").write_text(json.dumps(made))
    (found / "plan.json").write_text('{"schema": 1}')
    (found / "broken.json").write_text("{")
    return found


def test_a_profile_right_in_the_folder_is_found_and_its_gpu_is_the_one_asked_for(advisor, folder):
    ran = advisor("predict", "mine", "--profiles", folder, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["gpu"] == "h100-sxm-80gb"
    assert profiled_gpus(folder) == ("h100-sxm-80gb",)
    assert profile_paths("h100-sxm-80gb", folder) == {"mine": folder / "mine.json"}
    assert profile_paths("h200-141gb", folder) == {}


def test_a_plan_made_from_a_file_is_run_once_its_folder_is_named(advisor, folder, tmp_path):
    plan = tmp_path / "plan.json"
    words = ("export", folder / "mine.json", "--sharing", "serial", "--format", "json")
    assert advisor(*words, "--out", plan).code == 0
    ran = advisor("simulate", "--plan", plan)
    assert ran.code == 2
    assert "name the file's folder: --profiles DIR" in ran.err
    assert advisor("simulate", "--plan", plan, "--profiles", folder).code == 0
