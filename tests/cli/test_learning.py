"""Fit, evaluate, validate, calibrations and paces: what was measured here changes the answers."""

import json
import sys
from dataclasses import replace
from platform import node

import pytest

from advisor.files.reading import MODEL_FILE
from advisor.files.writing import append_record, record_line, record_text, write_whole
from advisor.hardware.gpus import gpu, keep_gpu
from advisor.measure import device
from advisor.measure.planned_runs import single_runs
from advisor.prediction.model import load_model
from advisor.prediction.replay import PHYSICS
from tests import synthetic
from tests.cli.conftest import BERT, GPU, PROFILES, RESNET
from tests.measure.calibrate import recorded
from tests.measure.calibrate.recorded import calibration
from tests.test_schemas import problems

PAIR = (RESNET, BERT)
JOBS = [PROFILES[name] for name in PAIR]
UNLISTED = "h800-80gb"


@pytest.mark.usefixtures("few_lessons")
def test_a_model_that_fit_wrote_is_used_and_learns_from_runs_of_ones_own(advisor, own, tmp_path):
    said = advisor("fit", "--out", tmp_path / "models")
    assert (said.code, "45 runs of 3 profiles" in said.out) == (0, True)
    assert advisor("recommend", *PAIR, "--models", tmp_path / "models").code == 0
    for number in range(3):
        run = synthetic.run(JOBS, "mps", 1.6, f"mps-{number}")
        append_record(own / "profiles" / GPU / "runs" / "validation.jsonl", run)
    fitted = json.loads(advisor("fit", "--json").out)
    assert problems("fit", fitted) == []
    assert sum(fitted["fitted_to"][GPU]["runs"].values()) == 48
    assert fitted["used"][GPU]["own_used"] == 3
    document = json.loads((own / "models" / MODEL_FILE).read_text())
    assert sum(document["data"][GPU]["runs"].values()) == 48


@pytest.mark.usefixtures("few_lessons")
def test_a_fit_that_searches_its_constants_writes_them_into_a_model_that_answers(
    advisor, tmp_path, monkeypatch
):
    monkeypatch.setattr("advisor.learn.fit._TRIALS", 2)
    start = replace(PHYSICS, packing=0.6, bandwidth=0.9)  # so that a search ends elsewhere
    monkeypatch.setattr("advisor.learn.fit.PHYSICS", start)
    said = advisor("fit", "--tune", "--out", tmp_path / "models")
    assert (said.code, "45 runs of 3 profiles" in said.out) == (0, True)
    searched = load_model(tmp_path / "models" / MODEL_FILE).constants[GPU].physics
    assert searched.packing != PHYSICS.packing
    assert searched.bandwidth != PHYSICS.bandwidth
    assert searched.slicing.slice_s == PHYSICS.slicing.slice_s, "which is measured, not searched"
    assert advisor("recommend", *PAIR, "--models", tmp_path / "models").code == 0


def test_a_run_of_another_gpu_stops_the_fit_and_without_any_the_model_stays(
    advisor, own, monkeypatch
):
    run = replace(synthetic.run(JOBS), gpu="a100-80gb")
    append_record(own / "profiles" / GPU / "runs" / "mine.jsonl", run)
    said = advisor("fit")
    assert (said.code, "a100-80gb" in said.err) == (2, True)
    (own / "profiles" / GPU / "runs" / "mine.jsonl").unlink()
    monkeypatch.delenv("ADVISOR_PROFILES")
    assert advisor("fit").code == 2
    assert not (own / "models").exists()


def test_validate_compares_runs_and_exits_with_5_when_one_is_outside(advisor, tmp_path):
    dry = advisor("validate", *PAIR, "--top", 1, "--dry-run")
    assert (dry.code, "$ " in dry.out) == (0, True)
    append_record(tmp_path / "runs.jsonl", synthetic.run(JOBS, "mps", slowdown=90, run_id="far"))
    said = advisor("validate", "--runs", tmp_path / "runs.jsonl", "--out", tmp_path / "kept")
    assert (said.code, "outside" in said.err) == (5, True)


@pytest.fixture(params=["h100-sxm-80gb", UNLISTED])
def here(request, own, advisor):  # noqa: ARG001 - which says where the user's data are
    """The key of a GPU of which a user has two profiles and nothing else; one is not listed."""
    if request.param == UNLISTED:
        listed = replace(gpu("h100-sxm-80gb"), sms=120, rates=None, sources={"driver": "580"})
        keep_gpu(replace(listed, key=UNLISTED, products=("NVIDIA H800",)))
    for each in JOBS:
        path = own / "profiles" / request.param / f"{each.name}.json"
        write_whole(path, record_line(replace(each, gpu=request.param)))
    return request.param


def test_on_a_gpu_without_runs_every_command_answers_from_profiles(advisor, here):
    for words in (
        ("predict", *PAIR, "--sharing", "mig=3g.40gb,4g.40gb"),
        ("export", *PAIR, "--sharing", "mps"),
        ("validate", *PAIR, "--dry-run"),
        ("layouts",),
    ):
        said = advisor(*words, "--gpu", here)
        assert said.code == 0, (words, said.err)
    plans = advisor.document("recommend", *PAIR, "--gpu", here)["plans"]
    shared = [plan for plan in plans if "serial" not in plan["sharing"]]
    assert {plan["estimated_from"] for plan in shared} == {GPU}
    assert not any(plan["confirmed_on_hardware"] for plan in shared)


@pytest.mark.usefixtures("few_lessons")
def test_the_first_runs_on_a_gpu_teach_the_next_fit(advisor, here, own, monkeypatch):
    def run_plans(key, plans, _device, store):
        mixes = [mix for plan in plans for mix in single_runs(plan)]
        made = []
        for mix in mixes:
            alone = [PROFILES[each.name] for each in mix.workloads]
            run = synthetic.run(alone, str(mix.sharing), 1.0 if len(alone) == 1 else 1.7, mix.id)
            made.append(replace(run, gpu=key, purpose="validation"))
            append_record(store, made[-1])
        return tuple(made)

    monkeypatch.setattr("advisor.run.validate.run_plans", run_plans)
    assert advisor("validate", *PAIR, "--top", 2, "--gpu", here).code in (0, 5)
    said = advisor("fit", "--gpu", here)
    assert said.code == 0, said.err
    document = json.loads((own / "models" / MODEL_FILE).read_text())
    assert sum(document["data"][here]["runs"].values()) in (1, 2)
    assert advisor("recommend", *PAIR, "--gpu", here).code == 0


@pytest.fixture
def on_slow_host(own, monkeypatch):
    """BERT's profile knows its host, and a check here takes one and a half times as long."""
    job = replace(PROFILES[BERT], host_check_s=1e-3)
    write_whole(own / "profiles" / GPU / f"{BERT}.json", record_line(job))
    monkeypatch.setattr(device, "check_host", lambda busy, *_: recorded.host_check(1.5e-3, busy))
    return ("predict", f"{BERT}:2", "--sharing", "serial")


def test_a_check_of_the_host_slows_a_host_bound_job_and_is_stated(advisor, on_slow_host):
    checked = advisor.document(*on_slow_host, "--check-host")
    plain = advisor.document(*on_slow_host, "--no-check-host")
    assert checked["host_factor"] == pytest.approx(1.5**0.73)
    assert plain["host_factor"] is None
    assert checked["jobs"][0]["step_s"]["p50"] > 1.2 * plain["jobs"][0]["step_s"]["p50"]


def test_a_check_that_fails_fails_no_command(advisor, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    said = advisor("predict", BERT, "--check-host")
    assert (said.code, "host not checked" in said.err) == (0, True)


@pytest.mark.parametrize("words", [("run",), ("validate", BERT)])
@pytest.mark.usefixtures("on_slow_host")
def test_run_and_validate_check_the_host_unless_told_otherwise(
    words, advisor, tmp_path, monkeypatch
):
    path, checks = tmp_path / "plan.json", []
    assert (
        advisor("export", f"{BERT}:2", "--sharing", "mps", "--format", "json", "--out", path).code
        == 0
    )
    monkeypatch.setattr(device, "check_host", lambda busy, *_: checks.append(busy))
    words = ("run", path, "--apply") if words == ("run",) else words
    monkeypatch.delenv("ADVISOR_CHECK_HOST")
    advisor(*words, "--no-check-host")
    assert checks == []
    advisor(*words)
    assert checks == [2 if "run" in words else 1]


def test_a_recent_check_and_the_last_run_alone_here_count_on_a_machine_with_the_gpu(
    advisor, own, on_slow_host, monkeypatch
):
    monkeypatch.delenv("ADVISOR_CHECK_HOST")
    here = synthetic.PROVENANCE
    monkeypatch.setattr("advisor.hardware.live_gpu.first_gpu", lambda: GPU)
    monkeypatch.setattr("advisor.measure.device.present_machine", lambda _: here)
    recent = "advisor.hardware.machine.recent_host_check"
    monkeypatch.setattr(recent, lambda: recorded.host_check(1.5e-3, busy=1))
    assert advisor.document(*on_slow_host)["host_factor"] is None, "one process, and two jobs"
    monkeypatch.setattr(recent, lambda: recorded.host_check(1.5e-3, busy=2))
    assert advisor.document(*on_slow_host)["host_factor"] == pytest.approx(1.5**0.73)
    made = replace(synthetic.PROVENANCE, host=node(), date="2027-01-01T00:00:00+00:00")
    alone = [
        replace(synthetic.run([PROFILES[BERT]], "naive", slowdown, f"r{slowdown}"), provenance=each)
        for slowdown, each in (
            (3.0, replace(made, date="2026-12-24T00:00:00+00:00")),
            (1.2, made),
            (5.0, replace(made, host="another")),
        )
    ]
    for run in alone:
        append_record(own / "profiles" / GPU / "runs" / "validation.jsonl", run)
    factor = advisor.document(*on_slow_host)["host_factor"]
    assert factor == pytest.approx((1.5**0.73 * 1.2) ** 0.5)


def test_a_calibration_is_named(advisor, own):
    path = own / "calibrations" / f"{GPU}.json"
    write_whole(path, record_text(calibration()))
    words = ("predict", BERT, "--sharing", "serial")
    assert advisor.document(*words)["calibrated"] == str(path)
    assert advisor.document(*words, "--calibration", "none")["calibrated"] is None
    newer = replace(calibration(), provenance=replace(synthetic.PROVENANCE, driver="590.1"))
    path.write_text(record_text(newer))
    said = advisor(*words, "--json")
    (stale,) = json.loads(said.out)["stale"]
    assert (stale["what"], stale["present"]) == ("driver", "590")
    assert said.err.startswith("warning: ")
    path.write_text(record_text(replace(calibration(), gpu="a100-80gb")))
    said = advisor(*words, "--calibration", path)
    assert (said.code, "a100-80gb" in said.err) == (2, True)


def test_evaluate_compares_predictions_with_ones_own_runs(advisor, own, tmp_path, monkeypatch):
    monkeypatch.delenv("ADVISOR_PROFILES")
    said = advisor("evaluate")
    assert (said.code, "validate" in said.err) == (2, True)
    for sharing in ("naive", "mps"):
        run = synthetic.run(JOBS, sharing, 1.6, f"mine-{sharing}")
        append_record(own / "profiles" / GPU / "runs" / "validation.jsonl", run)
    scores = advisor.document("evaluate")
    assert problems("evaluation", scores) == []
    assert [(row["mode"], row["n"]) for row in scores["modes"]] == [("naive", 2), ("mps", 2)]
    assert scores["choices"]["sets"] == 1
    line = {"run": "mine-mps", "step_s": [{"p50": 1.6 * job.step_s} for job in JOBS]}
    (tmp_path / "theirs.jsonl").write_text(json.dumps(line))
    scores = advisor.document("evaluate", "--predictions", tmp_path / "theirs.jsonl")
    (row,) = scores["modes"]
    assert (row["mape"], row["coverage90"]) == (pytest.approx(0.0), None)
