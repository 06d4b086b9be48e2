"""Recommendations that were run, and real runs taken as predictions for another host."""

import json
from dataclasses import replace

import pytest

from advisor.learn.regret import panels
from research.choices import followed, recommended, recommended_section
from research.steps import other_hosts, other_hosts_sentence, other_hosts_text
from tests.learn.test_regret import PAIR, evaluation, ran

NAMES = [profile.name for profile in PAIR]
ADVICE = [ran("naive", 1.6), ran("mps", 1.2), ran("mps=50,50", 1.25)]


def document(sharing, jobs=NAMES):
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
    assert followed(document("mps", NAMES[::-1]), panels(ADVICE)) == ()


def test_the_report_names_the_model_and_skips_recommendations_for_another_gpu(tmp_path):
    def written(text):
        (tmp_path / "panels").mkdir(exist_ok=True)
        (tmp_path / "panels" / "recommended.json").write_text(json.dumps(text))
        return recommended(evaluation(*ADVICE), tmp_path)

    assert written(document("mps") | {"gpu": "a100-40gb"}) == ()
    text = recommended_section(written(document("mps")))
    assert "`0123456789ab`" in text
    assert "they gave away 0.0 %" in text
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
    assert other_hosts_text(soon) == other_hosts_sentence(soon) == []
