"""Evaluation: no leak from what was left out, fair scores, and predictions of others from files."""

import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu
from advisor.learn.observations import ReplayCache
from advisor.learn.scores import JobComparison, RunComparison
from advisor.prediction.prediction import Interval
from research.entries import entries_text, score_entries
from research.evaluate import (
    Evaluation,
    Selection,
    evaluate,
    predict_folds,
    select,
)
from research.scoreboard import scoreboard, scores_of
from tests import synthetic
from tests.research.campaign import NAMES, PROFILES, advised_campaign, campaign

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


def test_noise_is_how_far_a_run_and_its_repeat_lie_apart_beside_the_error_of_the_same_jobs(
    evaluation,
):
    naive = next(scoreboard(evaluation))
    assert (naive.mode, naive.noise_n) == ("naive", 2)
    assert naive.noise == pytest.approx(0.05)
    (first,) = [run for run in evaluation.runs if run.run.id == "naive-0-same"]
    assert naive.noise_mape == pytest.approx(sum(abs(job.error) for job in first.jobs) / 2)


def test_panels_are_scored_apart_from_drawn_runs_with_the_same_columns(ours):
    drawn, panels = (scores_of(ours).pooled(part=part) for part in ("drawn", "panels"))
    assert sum(row.n for row in panels if row.bound == "all") == 4
    assert [row.mode for row in panels if row.bound == "all"] == ["naive", "mps"]
    assert sum(row.n for row in drawn if row.bound == "all") == 60


def test_the_profiles_host_is_where_a_run_followed_most_profiles():
    def at(made, hour):
        date = f"2026-11-21T{hour:02}:00:00+00:00"
        return replace(made, provenance=replace(synthetic.PROVENANCE, date=date))

    pair = list(PROFILES.values())[:2]
    runs = [
        replace(at(synthetic.run(pair, "naive", 1.5, f"{name}-0"), hour), purpose="drawn")
        for name, hour in (("early", 2), ("late", 6))
    ]
    hours = dict(zip(NAMES, (1, 3, 4, 5, 7), strict=True))  # one before, three between, one after
    profiles = {name: at(profile, hours[name]) for name, profile in PROFILES.items()}
    assert select(profiles, runs, H200).home == "late"
    bare = {name: replace(profile, provenance=None) for name, profile in PROFILES.items()}
    assert select(bare, runs, H200).home is None


def test_families_can_be_left_out_together():
    twice = [replace(run, id=f"{n}-{run.id}") for run in campaign() for n in (1, 2)]
    chosen = select(PROFILES, twice, H200)
    parts = predict_folds({"two": ("gpt2", "cait")}, chosen, ReplayCache())
    model, held = parts["two"]
    assert {job.family for job in held.values()} == {"gpt2", "cait"}
    assert model.data[H200.key].profiles == 2


def test_a_choice_is_by_models_that_saw_no_run_of_those_jobs():
    """Both of its families are left out, so what the set measured moves no prediction of it."""
    slower = [
        replace(
            synthetic.run(
                [PROFILES[t.workload.name] for t in run.tenants], run.sharing, 9.0, run.id
            ),
            purpose="validation",
        )
        for run in advised_campaign()
    ]
    before, after = (
        evaluate(PROFILES, [*campaign(), *advice], H200).advice
        for advice in (advised_campaign(), slower)
    )
    steps_s = [[job.predicted_s for run in each for job in run.jobs] for each in (before, after)]
    assert steps_s[0] == steps_s[1]


def test_gpu_bound_and_host_bound_jobs_are_scored_apart_and_sum_to_all(evaluation):
    for whole, busy, idle in zip(*[iter(scores_of(evaluation).pooled())] * 3, strict=True):
        assert (whole.bound, busy.bound, idle.bound) == ("all", "gpu", "host")
        assert whole.n == busy.n + idle.n
        errors = busy.n * busy.mape + idle.n * idle.mape
        assert errors / whole.n == pytest.approx(whole.mape)
        assert busy.throughput_mape is None


RUNS = [*campaign(), *advised_campaign()]


@pytest.fixture(scope="module")
def ours():
    return evaluate(PROFILES, RUNS, H200)


def entries(ours):
    return [json.loads(line) for line in entries_text(ours).splitlines()]


def scored(folder, lines):
    path = folder / "theirs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return score_entries(path, PROFILES, RUNS, H200)


def test_our_predictions_score_the_same_from_a_file(ours, tmp_path):
    again = scored(tmp_path, entries(ours))
    names = ("mode", "degree", "jobs", "n", "mape", "median", "p90", "coverage90")
    raw = [row for row in scoreboard(ours) if row.view == "raw"]
    for before, after in zip(raw, scoreboard(again), strict=True):
        assert [getattr(before, name) for name in names] == [getattr(after, name) for name in names]
    first, second = (scores_of(each).chosen.rules["model"] for each in (ours, again))
    assert (first.mean, first.worst, first.n) == (second.mean, second.worst, 1)


def no_bounds(lines):
    for line in lines:
        line["step_s"] = [{"p50": step["p50"]} for step in line["step_s"]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda lines: lines.pop(0), "naive-0-mixed"),
        (lambda lines: lines.pop(), "panels"),
        (lambda lines: lines.append({"run": "x", "step_s": []}), "x"),
        (no_bounds, None),
    ],
)
def test_a_file_is_scored_or_refused_with_the_place(ours, tmp_path, change, named):
    change(lines := entries(ours))
    if named:
        with pytest.raises(InvalidInput, match=named):
            scored(tmp_path, lines)
    else:  # without intervals there is no coverage
        row = next(scoreboard(scored(tmp_path, lines)))
        assert (row.coverage90, row.mape) == (None, next(scoreboard(ours)).mape)


ALONE = synthetic.profile(host_s=0.010, gpu_s=0.010)


def scored_job(predicted_s, measured_s=0.020, capacity_s=0.010):
    return JobComparison(
        job=ALONE.name,
        family="resnet",
        alone_s=0.010,
        measured_s=measured_s,
        predicted_s=Interval(0.9 * predicted_s, predicted_s, 1.1 * predicted_s),
        baselines_s={"alone": 0.010, "fair-share": None, "capacity": capacity_s, "replay": None},
    )


def one_run(*jobs):
    run = synthetic.run([ALONE] * len(jobs), "naive", 2.0)
    chosen = Selection(
        gpu=H200,
        profiles={ALONE.name: ALONE},
        runs=(run,),
        scored=(run,),
        unusable=(),
        advice=(),
        alone=(),
        repeats=(),
    )
    return Evaluation(chosen=chosen, runs=(RunComparison(run, jobs),))


def test_errors_are_shares_of_what_was_measured():
    row = next(scoreboard(one_run(scored_job(0.022), scored_job(0.014))))
    assert row.mape == pytest.approx((0.1 + 0.3) / 2)
    assert row.median == pytest.approx(0.2)
    assert row.p90 == pytest.approx(0.28)


def test_a_baseline_is_scored_on_the_same_jobs_or_not_at_all():
    row = next(scoreboard(one_run(scored_job(0.02), scored_job(0.02, capacity_s=None))))
    assert row.baselines == {
        "alone": pytest.approx(0.5),
        "fair-share": None,
        "capacity": None,
        "replay": None,
    }
