"""What `fit` learnt of the user's own jobs is used and said wherever they are asked about."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB, OTHER = "resnet26-cifar10-bs128", "bert-base-finetune-bs16"
H200 = ROOT / "profiles" / "h200-141gb"


@pytest.fixture
def models(tmp_path):
    """The shipped model, which runs of a user taught that JOB takes half as long again.

    And that under MPS OTHER takes a quarter longer than predicted.
    """
    model = json.loads((ROOT / "models" / "sharing.json").read_text())
    profiled = json.loads((H200 / f"{JOB}.json").read_text())["provenance"]["date"]
    pace = {"slowdown": 1.5, "runs": 3, "profiled": profiled}
    large = json.loads((H200 / f"{OTHER}.json").read_text())["provenance"]["date"]
    beside = {"mps": {"factor": 1.25, "runs": 4}}
    steps = {"slowdown": 1.0, "runs": 0, "profiled": large, "beside": beside}
    model["own_paces"] = {"h200-141gb": {JOB: pace, OTHER: steps}}
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


@pytest.mark.parametrize(("sharing", "longer"), [("mps", 1.25), ("naive", 1.0)])
def test_a_job_that_fills_the_gpu_is_predicted_as_in_own_runs_that_shared_so(
    advisor, models, sharing, longer
):
    words = ("predict", OTHER, OTHER, "--sharing", sharing, "--profiles", H200.parent, "--json")
    shipped, own = (advisor(*words, "--models", each) for each in (ROOT / "models", models))
    wanted = [longer * each for each in step_s(shipped)]
    assert step_s(own) == pytest.approx(wanted)
    assert json.loads(own.out)["own_paces"][OTHER]["beside"]["mps"]["runs"] == 4


def test_the_answer_says_whose_pace_it_is(advisor, models):
    asked = ("--profiles", H200.parent, "--models", models)
    said = " ".join(advisor("recommend", JOB, OTHER, *asked, "--details").out.split())
    assert f"{JOB} by 3 runs (1.50 times its profile's)." in said
    assert f"over those from profiles alone: {OTHER} 1.25 (mps, 4 runs)." in said
