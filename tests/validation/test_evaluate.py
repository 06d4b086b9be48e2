import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.gpu.catalogue import gpu
from advisor.validation.evaluate import evaluate
from advisor.validation.scoreboard import evaluation_document, scoreboard
from tests import synthetic
from tests.validation.campaign import NAMES, PROFILES, campaign

H200 = gpu("h200-141gb")


def predictions(evaluation):
    return {
        (run.run.id, place): job.predicted_s
        for run in evaluation.runs
        for place, job in enumerate(run.jobs)
    }


@pytest.fixture(scope="module")
def evaluation():
    runs = campaign()
    again = replace(
        synthetic.run([PROFILES[NAMES[0]]] * 2, "naive", 1.1 * 1.05, "again"),
        purpose="repeat",
        repeats="naive-0-same",
    )
    solo = replace(synthetic.run([PROFILES[NAMES[2]]], "naive", 1.03, "solo"), purpose="solo")
    return evaluate(PROFILES, [*runs, again, solo], H200)


def test_every_job_of_every_drawn_run_is_scored_once(evaluation):
    assert [len(run.jobs) for run in evaluation.runs] == [2] * 42


def test_how_a_family_ran_never_reaches_the_model_that_predicts_it(evaluation):
    """The leak test: resnets run five times slower, and resnets are predicted all the same."""
    moved = evaluate(PROFILES, campaign(slow_family="resnet"), H200)
    before, after = predictions(evaluation), predictions(moved)
    resnets = [
        (run.run.id, place)
        for run in evaluation.runs
        for place, tenant in enumerate(run.run.tenants)
        if tenant.workload.family == "resnet"
    ]
    assert len(resnets) == 24
    assert {key: after[key] for key in resnets} == {key: before[key] for key in resnets}
    assert after != before


def test_the_noise_floor_is_how_far_a_run_and_its_repeat_lie_apart(evaluation):
    naive = scoreboard(evaluation)[0]
    assert naive.mode == "naive"
    assert naive.noise_floor == pytest.approx(0.05)


def test_drift_of_solo_runs_between_the_others_is_reported(evaluation):
    assert evaluation.drift.n == 1
    assert evaluation.drift.median == pytest.approx(0.03)
    assert evaluation.drift.worst_job == NAMES[2]


def test_same_jobs_and_mixes_are_scored_apart(evaluation):
    rows = {(row.mode, row.degree, row.jobs): row for row in scoreboard(evaluation)}
    assert {mode for mode, _, _ in rows} == {"naive", "mps", "mps-limits"}
    for mode in ("naive", "mps", "mps-limits"):
        assert [rows[mode, 2, jobs].n for jobs in ("all", "same", "mixed")] == [28, 14, 14]
        assert rows[mode, None, "all"].n == 28


def test_as_if_alone_is_off_by_all_the_slowdown_there_was(evaluation):
    factors = [1.1 + 0.1 * place for place in range(7)]
    expected = sum(1 - 1 / factor for factor in factors) / 7
    assert scoreboard(evaluation)[0].baselines["alone"] == pytest.approx(expected)


def test_the_document_is_json_and_names_its_split(evaluation):
    document = json.loads(json.dumps(evaluation_document(evaluation), allow_nan=False))
    assert document["schema"] == 1
    assert document["split"] == "leave-one-family-out"
    assert document["rows"][0]["baselines"].keys() == {
        "alone", "fair-share", "summed-utilisation", "capacity", "replay"
    }  # fmt: skip


def test_runs_that_a_person_or_a_model_chose_are_not_scored():
    chosen = [replace(run, purpose="chosen") for run in campaign()]
    with pytest.raises(InvalidInput, match="no run to score"):
        evaluate(PROFILES, chosen, H200)


def test_a_drawn_run_that_ended_early_is_named_not_scored(evaluation):
    first, *others = campaign()
    dead = replace(first.tenants[0], outcome="out-of-memory", detail="CUDA OOM", windows=())
    broken = replace(first, tenants=(dead, first.tenants[1]))
    again = evaluate(PROFILES, [broken, *others], H200)
    assert again.unusable == (first.id,)
    assert len(again.runs) == len(evaluation.runs) - 1
