import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.validate import folds
from advisor.validate.evaluate import evaluate
from advisor.validate.noise_and_coverage import noise_of, steadiness
from advisor.validate.score_tables import evaluation_document
from advisor.validate.scoreboard import scoreboard, scores_of
from advisor.validate.selection import hosts_of
from research.steps import errors_by_busy_share, errors_by_family
from tests import synthetic
from tests.validate.campaign import NAMES, PROFILES, advised_campaign, campaign

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
    assert [len(run.jobs) for run in evaluation.runs] == [2] * 30


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
    rows = {(row.mode, row.degree, row.jobs): row for row in scores_of(evaluation).by_degree}
    assert {mode for mode, _, _ in rows} == {"naive", "mps", "mps-limits"}
    for mode in ("naive", "mps", "mps-limits"):
        assert [rows[mode, 2, jobs].n for jobs in ("all", "same", "mixed")] == [20, 10, 10]
        assert rows[mode, None, "all"].n == 20


def test_as_if_alone_is_off_by_all_the_slowdown_there_was(evaluation):
    factors = [1.1 + 0.1 * place for place in range(len(NAMES))]
    expected = sum(1 - 1 / factor for factor in factors) / len(factors)
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


def test_experiments_on_memory_and_on_the_host_are_no_runs_to_score_or_choose_from(evaluation):
    pair = [PROFILES[NAMES[0]], PROFILES[NAMES[1]]]
    small = synthetic.run(pair, "mps", 9.0, "small")
    trial = replace(small, purpose="memory", capacity_mib=24_000, free_mib=23_000.0)
    control = replace(small, id="control", purpose="control")
    again = evaluate(PROFILES, [*campaign(), trial, control], H200)
    assert len(again.runs) == len(evaluation.runs)
    assert again.advice == ()


def test_a_drawn_run_that_ended_early_is_named_not_scored(evaluation):
    first, *others = campaign()
    dead = replace(first.tenants[0], outcome="out-of-memory", detail="CUDA OOM", windows=())
    broken = replace(first, tenants=(dead, first.tenants[1]))
    again = evaluate(PROFILES, [broken, *others], H200)
    assert again.unusable == (first.id,)
    assert len(again.runs) == len(evaluation.runs) - 1


def test_the_answer_is_the_same_however_many_processes_find_it(monkeypatch):
    monkeypatch.setattr(folds, "_WORTH_SPREADING", 1)
    spread = evaluate(PROFILES, campaign(), H200, processes=2)
    alone = evaluate(PROFILES, campaign(), H200)
    assert predictions(spread) == predictions(alone)


def test_runs_of_advice_are_chosen_from_and_never_scored(evaluation):
    advised = evaluate(PROFILES, [*campaign(), *advised_campaign()], H200)
    assert [run.run.id for run in advised.advice] == ["advice-naive", "advice-mps"]
    assert len(advised.runs) == len(evaluation.runs)


def test_a_choice_is_by_models_that_saw_no_run_of_those_jobs():
    """Both of its families are left out, so what the set measured moves no prediction of it."""
    slower = [
        replace(synthetic.run([PROFILES[t.workload.name] for t in run.tenants], run.sharing, 9.0,
                              run.id), purpose="validation")
        for run in advised_campaign()
    ]  # fmt: skip
    before, after = (
        evaluate(PROFILES, [*campaign(), *advice], H200).advice
        for advice in (advised_campaign(), slower)
    )
    told = [[job.predicted_s for run in each for job in run.jobs] for each in (before, after)]
    assert told[0] == told[1]


def test_the_document_begins_with_one_row_for_each_mode_and_degree_of_all_hosts(evaluation):
    rows = evaluation_document(evaluation)["rows"]
    assert [(row["mode"], row["degree"]) for row in rows[:6]] == [
        (mode, degree) for mode in ("naive", "mps", "mps-limits") for degree in (None, 2)
    ]
    assert {(row["view"], row["host"], row["bound"]) for row in rows[:6]} == {("raw", "all", "all")}
    asked = {"n", "mape", "median", "p90", "coverage90", "noise_floor", "throughput_mape"}
    assert all(asked <= row.keys() for row in rows)


def test_excess_error_is_what_lies_beyond_the_noise_of_two_runs(evaluation):
    noise = noise_of(evaluation.runs, evaluation.repeats)
    assert noise.rmse == pytest.approx(0.05)
    assert noise.excess == pytest.approx(max(0.0, noise.error_rmse**2 - 0.05**2) ** 0.5)
    assert noise.excess <= noise.excess_over_one_run <= noise.error_rmse


def test_noise_says_nothing_where_no_run_was_repeated(evaluation):
    assert noise_of(evaluation.runs, ()) is None


def test_workloads_that_repeat_within_5_percent_are_counted(evaluation):
    steady = steadiness(evaluation.repeats)
    assert (steady.steady, steady.workloads) == (0, 1)  # 5.0 % and a little


def test_every_scored_job_is_in_one_family_and_one_stretch_of_busy_shares(evaluation):
    for groups in (errors_by_family(evaluation), errors_by_busy_share(evaluation)):
        assert sum(each.n for each in groups) == 2 * len(evaluation.runs)


def test_gpu_bound_and_host_bound_jobs_are_scored_apart_and_sum_to_all(evaluation):
    for whole, busy, idle in zip(*[iter(scores_of(evaluation).pooled())] * 3, strict=True):
        assert (whole.bound, busy.bound, idle.bound) == ("all", "gpu", "host")
        assert whole.n == busy.n + idle.n
        errors = busy.n * busy.mape + idle.n * idle.mape
        assert errors / whole.n == pytest.approx(whole.mape)
        assert busy.throughput_mape is None


def on_cores(runs, check_s):
    """`runs` on cores that take `check_s` for a fixed piece of work; None: not recorded."""
    return [
        replace(run, tenants=tuple(replace(each, host_check_s=check_s) for each in run.tenants))
        for run in runs
    ]


def test_runs_that_do_not_say_how_fast_their_cores_were_are_scored_raw_alone(evaluation):
    first, *others = campaign()
    silent = evaluate(PROFILES, [*on_cores([first], None), *others], H200)
    assert len(silent.runs) == len(evaluation.runs)
    assert [run.run.id for run in silent.adjusted] == [run.id for run in others]


def test_how_fast_a_runs_cores_were_moves_no_raw_answer(evaluation):
    """The second leak test: it is known after the run alone."""
    job = evaluation.runs[0].jobs[0]
    assert job.alone_s == PROFILES[job.job].step_s
    slower = {run.id: run for run in on_cores(campaign(), 0.0015)}
    told = evaluate(PROFILES, [*campaign()[1:], slower[campaign()[0].id]], H200)
    raw, known = (
        next(each for each in part if each.run.id == campaign()[0].id)
        for part in (told.runs, told.adjusted)
    )
    assert raw.jobs[0].alone_s == PROFILES[job.job].step_s
    assert known.jobs[0].alone_s > raw.jobs[0].alone_s


def made(campaign_name, day="2026-11-21", cpu="Intel(R) Xeon(R) Processor"):
    run = synthetic.run([PROFILES[NAMES[0]]] * 2, "mps", 1.3, f"{campaign_name}-drawn-{day}-{cpu}")
    where = replace(run.provenance, date=f"{day}T04:00:00+00:00", host_cpu=cpu)
    return replace(run, provenance=where)


def test_a_host_is_a_campaign_and_what_tells_its_machines_apart():
    runs = [made("third"), made("fourth", cpu="AMD EPYC"), made("fourth"), made("fourth")]
    assert set(hosts_of(runs).values()) == {
        "third", "fourth, AMD EPYC", "fourth, Intel Xeon"
    }  # fmt: skip
    days = [made("fourth"), made("fourth", day="2026-11-22")]
    assert list(hosts_of(days).values()) == ["fourth, 2026-11-21", "fourth, 2026-11-22"]
    assert list(hosts_of([replace(made("third"), id="drawn-001")]).values()) == ["first"]


def test_each_host_has_pooled_rows_of_its_own(evaluation):
    scores = scores_of(evaluation)
    assert scores.hosts == ("naive", "mps", "mps=50,50")  # ids of the made-up runs begin so
    rows = [row for host in scores.hosts for row in scores.pooled(host)]
    assert {row.degree for row in rows} == {None}
    whole = {row.mode: row for row in rows if row.bound == "all"}
    assert {mode: row.n for mode, row in whole.items()} == {
        row.mode: row.n for row in scores.by_degree if row.degree is None
    }
