"""Jobs on a GPU are scored by models that saw no run on it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.validate.selection import families_of, select
from research.files import measured
from research.gpu_left_out import gpus_left_out, section

PROFILES = Path(__file__).parents[2] / "profiles"
H100 = "h100-sxm-80gb"


SAMPLE = re.compile(r'"id":"h100-(drawn-..[05]|solo|panel-0[0-2]|priority-drawn-..0)')


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of the H100 all profiles, a few of the drawn runs, and three job sets."""
    there = tmp_path_factory.mktemp("profiles") / H100
    (there / "runs").mkdir(parents=True)
    for profile in (PROFILES / H100).glob("*.json"):
        (there / profile.name).symlink_to(profile)
    for file in (PROFILES / H100 / "runs").glob("*.jsonl"):
        kept = [line for line in file.read_text().splitlines(True) if SAMPLE.match(line, 1)]
        (there / "runs" / file.name).write_text("".join(kept))
    return there


@pytest.fixture(scope="module")
def scored(folder):
    """These runs, by the shipped model as if it had not seen them."""
    model = load_model(PROFILES.parent / "models" / "sharing.json")
    unaware = replace(model, data={key: each for key, each in model.data.items() if key != H100})
    profiles, runs = measured(folder)
    families = families_of(select(profiles, runs, gpu(H100)).scored)
    folders = [PROFILES / "h200-141gb", folder]
    return gpus_left_out(folders, "h200-141gb", dict.fromkeys(families, unaware))


def test_each_gpu_but_the_one_learnt_on_is_scored(scored):
    (only,) = scored
    assert (only.learnt_on, only.scores.gpu) == ("h200-141gb", H100)


def test_every_drawn_run_counts(scored, folder):
    profiles, runs = measured(folder)
    chosen = select(profiles, runs, gpu(H100))
    assert scored[0].scores.runs == len(chosen.scored) > 0
    jobs = sum(len(run.tenants) for run in chosen.scored)
    assert sum(row.n for row in scored[0].scores.pooled() if row.bound == "all") == jobs


def test_its_job_sets_are_chosen_for_by_the_same_models(scored):
    judged = scored[0].scores.chosen
    assert judged.sets == 3
    assert 0 <= judged.rules["model"].mean <= judged.rules["random"].mean
    (written,) = scored[0].recommended
    assert len(written.followed) == 3
    assert "Their choices, of 3 job sets" in section(scored)


def test_the_report_says_what_was_learnt_where_and_scored_where(scored):
    text = section(scored)
    assert "Models of h200-141gb runs alone, without the family of the job, on " in text
    assert f"drawn runs on {H100}" in text
    assert section(()) == ""


def test_a_folder_without_drawn_runs_is_passed_over(tmp_path):
    (tmp_path / H100 / "runs").mkdir(parents=True)
    assert gpus_left_out([tmp_path / H100], "h200-141gb", {}) == ()
