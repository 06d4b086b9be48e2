"""Errors of memory and of whole jobs, advice that was run, and runs that predict other hosts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from advisor.hardware.gpus import gpu
from advisor.learn.memory_power import Trial
from advisor.prediction.memory import Need
from advisor.workload.profile import Memory
from research import memory
from research.choices import followed, recommended, recommended_section
from research.regret import panels
from research.steps import other_hosts, other_hosts_section, other_hosts_sentence
from research.whole_jobs import (
    RECOMMENDED,
    SIMULATED,
    finished,
    simulated_runs,
    whole_jobs,
    whole_jobs_section,
)
from tests import synthetic
from tests.plan.stand_in import StandIn
from tests.research.test_regret import PAIR, evaluation, ran
from tests.research.whole_jobs import LONG, SHORT, whole

H200 = gpu("h200-141gb")
NAMES = ("resnet50-imagenet64-bs128", "bert-base-finetune-bs16", "mlp-toy-bs128")
PROFILES = {name: synthetic.profile(name) for name in NAMES}
WHOLE = {profile.name: profile for profile in (SHORT, LONG)}
# The stand-in adds GPU time up: 30 ms a step for both until the short job ends after 3 s; then the
# long one does its other 100 steps in 20 ms each.
NAIVE = whole("set-naive", "naive", (3.0, 5.0))
SET = (
    whole("set-serial", "serial", (1.0, 5.0), pauses_s=(0.0,)),
    NAIVE,
    whole("set-mps", "mps", (2.0, 4.0)),
    whole("set-recommended", "mps[1];naive[2]", (1.0, 5.0), pauses_s=(0.25,)),
)


@pytest.mark.parametrize(("factor", "error"), [(1.0, 0.0), (1.25, 0.2), (0.8, 0.25)])
def test_errors_of_memory_are_shares_of_what_was_measured(factor, error):
    runs = []
    for number in range(3):
        run = synthetic.run(list(PROFILES.values()), "naive", run_id=f"r{number}")
        tenants = tuple(
            replace(
                tenant,
                memory=Memory(
                    allocated_mib=tenant.memory.allocated_mib * factor,
                    reserved_mib=tenant.memory.reserved_mib * factor,
                    device_mib=tenant.memory.device_mib * factor,
                ),
            )
            for tenant in run.tenants
        )
        runs.append(replace(run, tenants=tenants))
    score = memory.memory_score(PROFILES, runs, H200)
    (row,) = score.rows
    assert (row.mode, row.processes, row.runs) == ("naive", 9, 3)
    assert (row.held_mape, row.held_worst) == pytest.approx((error, error))
    assert (row.least_mape, row.total_mape) == pytest.approx((error, error))
    assert score.risks == ()


def test_risks_learnt_from_other_families_come_true(monkeypatch):
    random = np.random.default_rng(3)
    tried = []
    for number in range(300):  # 30 GB mixes that run out if a card is too small for their caches
        capacity_mib = 30_000 + 6000 * random.uniform(-0.5, 1.5)
        edge_mib = 30_000 + 6000 * random.normal(0.4, 0.15)
        families = frozenset({"abcd"[number % 4], "abcd"[number // 4 % 4]})
        needs = (Need(18_000, 15_000), Need(18_000, 15_000))
        tried.append(Trial("mps", families, needs, capacity_mib, int(capacity_mib < edge_mib)))
    monkeypatch.setattr(memory, "trials", lambda *_: tried)
    (row,) = memory.memory_score(PROFILES, [], H200).risks
    assert (row.trials, row.mode) == (300, "mps")
    assert row.recall > 0.8
    assert row.false_alarms < 0.2


def test_whole_jobs_are_simulated_from_their_profiles():
    (naive,) = simulated_runs([NAIVE], WHOLE, StandIn())
    assert [end.p50 for end in naive.predicted_s] == pytest.approx([3.0, 5.0])
    runs = simulated_runs([NAIVE, whole("slow", "naive", (4.0, 4.0))], WHOLE, StandIn())
    done = finished(runs)
    assert done.makespan == pytest.approx(0.125)
    assert done.worst_makespan == pytest.approx(0.25)
    assert done.completion == pytest.approx((0 + 0 + 0.25 + 0.25) / 4)
    assert done.inside == 0.5
    assert simulated_runs([whole("failed", "naive", (3.0, None))], WHOLE, StandIn()) == ()


def test_choices_are_compared_with_the_fastest_run_of_their_set(tmp_path):
    (tmp_path / "completion-panels").mkdir()
    file = tmp_path / "completion-panels" / "recommended.json"
    file.write_text('{"sets": [{"set": "set", "run": "set-recommended"}]}')
    score = whole_jobs(simulated_runs(SET, WHOLE, StandIn()), WHOLE, tmp_path)
    assert score.rules["always-mps"].mean == score.rules[SIMULATED].mean == 0.0
    assert score.rules["always-naive"].mean == pytest.approx(1 - 4 / 5)
    assert score.rules[RECOMMENDED].mean == pytest.approx(1 - 4 / 5)
    assert "| always MPS | 1 | 0.0 % | 0.0 % | 1 of 1 |" in whole_jobs_section(score)
    assert whole_jobs_section(whole_jobs((), WHOLE, tmp_path)) == ""


PAIR_NAMES = [profile.name for profile in PAIR]
ADVICE = [ran("naive", 1.6), ran("mps", 1.2), ran("mps=50,50", 1.25)]


def document(sharing, jobs=PAIR_NAMES):
    entry = {"set": "panel-00", "jobs": jobs, "sharing": sharing, "throughput": 1.5}
    return {"gpu": "h200-141gb", "model_sha256": "0123456789abcdef", "sets": [entry]}


def test_a_recommendation_gives_away_what_the_best_measured_sharing_had_more():
    (run,) = followed(document("mps=50,50"), panels(ADVICE))
    assert run.measured == pytest.approx(2 / 1.25)
    assert run.regret == pytest.approx(1 - 1.2 / 1.25)
    (serial,) = followed(document("serial"), panels(ADVICE))
    assert serial.measured == 1


def test_a_recommendation_that_was_not_run_is_not_judged():
    assert followed(document("mps=30,70"), panels(ADVICE)) == ()
    assert followed(document("mps", PAIR_NAMES[::-1]), panels(ADVICE)) == ()


def test_the_report_names_the_model_and_skips_recommendations_for_another_gpu(tmp_path):
    def written(text):
        (tmp_path / "panels").mkdir(exist_ok=True)
        (tmp_path / "panels" / "recommended.json").write_text(json.dumps(text))
        return recommended(evaluation(*ADVICE), tmp_path)

    assert written(document("mps") | {"gpu": "a100-40gb"}) == ()
    text = recommended_section(written(document("mps")))
    assert "`0123456789ab`" in text
    assert "They gave away 0.0 %" in text
    assert "always naive 25.0 % on average" in text


def at(hour, slowdown, predicted, sharing="mps", day=21):
    run = ran(sharing, slowdown, predicted, run_id=f"panel-00-{sharing}-{day}-{hour}")
    origin = replace(run.run.provenance, date=f"2026-11-{day}T{hour:02}:00:00+00:00")
    return replace(run, run=replace(run.run, provenance=origin))


def test_a_run_is_compared_with_the_mean_of_runs_on_other_hosts():
    rows = other_hosts(evaluation(at(1, 2.0, 2.2), at(1, 1.6, 2.2, day=24)))
    assert (rows[0].mode, rows[0].bound) == ("mps", "all")
    assert rows[0].apart == pytest.approx((0.2 + 0.25) / 2)
    assert rows[0].mape == pytest.approx((2.2 / 2.0 - 1 + 2.2 / 1.6 - 1) / 2)
    assert "22.5 % (MPS)" in other_hosts_sentence(rows)[0]
    runs = (at(1, 2.0, 2.0), at(1, 1.0, 2.0, day=22), at(1, 3.0, 2.0, day=23))
    assert other_hosts(evaluation(*runs))[0].apart == pytest.approx((0.0 + 1.5 + 0.5) / 3)


def test_runs_within_hours_or_in_another_way_compare_no_hosts():
    soon = other_hosts(evaluation(at(1, 2.0, 2.2), at(6, 1.6, 2.2)))
    other = other_hosts(evaluation(at(1, 2.0, 2.2), at(1, 1.6, 2.2, sharing="naive", day=24)))
    assert soon == other == ()
    assert (other_hosts_section(soon), other_hosts_sentence(soon)) == ("", [])
