from dataclasses import replace
from importlib.util import find_spec

import pytest

from advisor.errors import AdvisorError
from advisor.measure.device import command_line
from advisor.run.mlflow import EXPERIMENT, MlflowLog
from advisor.workload.spec import Script
from tests import synthetic
from tests.report import mlflow_stand_in

PROFILE = synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002)
RUN = synthetic.run([PROFILE] * 2, slowdown=1.0)
PLANS = {
    "schema": 1,
    "gpu": "h200-141gb",
    "objective": "makespan",
    "plans": [
        {
            "rank": 1,
            "sharing": "mps=43,57",
            "late": [],
            "makespan_s": 4.0,
            "why": "it's fast",
            "jobs": [{"job": "a(b)", "step_s": {"p05": 0.1, "p50": 0.2, "p95": float("inf")}}],
        }
    ],
}


@pytest.fixture
def store(monkeypatch):
    return mlflow_stand_in.install(monkeypatch)


def test_plans_are_logged_as_predictions_with_every_number_by_its_place(store):
    MlflowLog("sqlite:///x.db").plans(PLANS)
    (logged,) = store.runs
    assert logged.tags == {"advisor.kind": "plans", "advisor.basis": "predicted"}
    assert logged.params["objective"] == "makespan"
    assert logged.metrics["plans/1/makespan_s"] == 4.0
    assert logged.metrics["plans/1/jobs/1/step_s/p50"] == 0.2
    assert "plans/1/jobs/1/step_s/p95" not in logged.metrics  # MLflow takes no infinity
    assert logged.files["plans.json"] == PLANS
    assert logged.ended


def test_profiles_and_runs_are_logged_as_measured(store):
    log = MlflowLog("sqlite:///x.db")
    log.profile(PROFILE)
    log.run(RUN)
    profile, run = store.runs
    assert {each.tags["advisor.basis"] for each in (profile, run)} == {"measured"}
    assert profile.params["model"] == PROFILE.workload.model
    assert profile.metrics["host_s"] == 0.007
    assert profile.files["profile.json"]["trace"] is None  # thousands of kernels
    assert run.params["sharing"] == "mps"
    assert run.metrics["step_s/1 resnet26-cifar10-bs128"] == pytest.approx(PROFILE.step_s)
    assert list(store.experiments) == [EXPERIMENT]


@pytest.mark.parametrize("given", [["--api-key", "hidden"], ["--token=hidden"]])
def test_no_secret_of_a_command_or_an_environment_is_logged(store, given):
    command = ["python", "t.py", *given, "--lr", "0.1"]
    secret = Script(command=tuple(command), folder="/here", environment={"KEY": "hidden"})
    workload = replace(PROFILE.workload, source="script", script=secret)
    made = replace(PROFILE.provenance, command=command_line("profile", ["--", *command]))
    log = MlflowLog("sqlite:///x.db")
    log.profile(replace(PROFILE, workload=workload, provenance=made))
    log.run(replace(RUN, tenants=(replace(RUN.tenants[0], workload=workload),), provenance=made))
    log.plans(PLANS | {"workloads": [{"script": {"command": command}}]})
    assert len(store.runs) == 3
    for each in store.runs:
        assert "hidden" not in f"{each.params} {each.metrics} {each.files} {each.tags}"
        assert "'t.py', '--" in str(each.files)
        assert "'--lr', '0.1'" in str(each.files)


@pytest.mark.usefixtures("store")
def test_a_place_that_does_not_answer_gets_a_sentence():
    with pytest.raises(AdvisorError, match="--mlflow http://down: ConnectionError: Max retries"):
        MlflowLog("http://down")


@pytest.mark.filterwarnings("default")  # its database warns
@pytest.mark.skipif(find_spec("mlflow") is None, reason="MLflow is not installed")
def test_mlflow_itself_takes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MlflowLog("sqlite:///x.db").profile(PROFILE)
    from mlflow import MlflowClient

    client = MlflowClient("sqlite:///x.db")
    experiment = client.get_experiment_by_name(EXPERIMENT)
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.tags["advisor.kind"] == "profile"
