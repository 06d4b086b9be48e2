"""What `fit` learnt of the user's own jobs is used and said wherever they are asked about."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB, OTHER = "resnet26-cifar10-bs128", "bert-base-finetune-bs16"
H200 = ROOT / "profiles" / "h200-141gb"


@pytest.fixture
def models(tmp_path):
    """The shipped model, which a user's three runs taught that JOB takes half as long again."""
    model = json.loads((ROOT / "models" / "sharing.json").read_text())
    profiled = json.loads((H200 / f"{JOB}.json").read_text())["provenance"]["date"]
    pace = {"slowdown": 1.5, "runs": 3, "profiled": profiled}
    model["own_paces"] = {"h200-141gb": {JOB: pace}}
    (tmp_path / "sharing.json").write_text(json.dumps(model))
    return tmp_path


def step_s(said):
    assert said.code == 0, said.err
    return [job["step_s"]["p50"] for job in json.loads(said.out)["jobs"]]


@pytest.mark.parametrize("sharing", ["serial", "naive"])
def test_the_job_is_predicted_at_its_pace_in_own_runs(advisor, models, sharing):
    words = ("predict", JOB, OTHER, "--sharing", sharing, "--profiles", H200.parent, "--json")
    shipped = advisor(*words, "--models", ROOT / "models")
    own = advisor(*words, "--models", models)
    (before_s, _), (after_s, _) = step_s(shipped), step_s(own)
    assert after_s > 1.1 * before_s
    assert json.loads(own.out)["own_paces"][JOB]["runs"] == 3
    assert json.loads(shipped.out)["own_paces"] == {}


def test_the_answer_says_whose_pace_it_is(advisor, models):
    asked = ("--profiles", H200.parent, "--models", models)
    said = advisor("recommend", JOB, OTHER, *asked, "--details")
    assert f"{JOB} by 3 runs (1.50 times its profile's)" in " ".join(said.out.split())
