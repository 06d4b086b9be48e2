from dataclasses import replace

import pytest

from advisor.prediction.interval import Interval
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from advisor.validate.baselines import CHOOSERS, Offer, equal_limits
from advisor.validate.evaluate import Evaluation
from advisor.validate.panels import panels
from advisor.validate.predicted_and_measured import JobComparison, RunComparison
from advisor.validate.regret import choices, chosen_and_drawn, judged, regret_document, regrets
from tests import synthetic

PAIR = [
    synthetic.profile("resnet50-imagenet64-bs128"),
    synthetic.profile("bert-base-finetune-bs16"),
]
PROFILES = {each.name: each for each in PAIR}


def ran(sharing, slowdown, predicted=1.5, *, run_id=None, replayed=1.5, jobs=PAIR):
    """A run in which every job was `slowdown` times slower, and `predicted` times by the model."""
    run = synthetic.run(jobs, sharing, slowdown, run_id or f"set-1-{sharing}")
    return RunComparison(
        replace(run, purpose="validation"),
        tuple(
            JobComparison(
                job=each.name, family=each.workload.family, busy_share=each.busy_share,
                alone_s=each.step_s, measured_s=slowdown * each.step_s,
                predicted_s=Interval(*[predicted * each.step_s] * 3), memory_mib=None,
                measured_memory_mib=None,
                baselines_s={"replay": replayed and replayed * each.step_s},
            )
            for each in jobs
        ),
    )  # fmt: skip


def evaluation(*advice, alone=()):
    return Evaluation(
        gpu="h200-141gb", families=(), runs=(), repeats=(), unusable=(), drift=None,
        advice=advice, alone=alone, profiles=PROFILES,
    )  # fmt: skip


def test_regret_is_what_the_choice_gave_away_of_the_best_measured_plan():
    (panel,) = panels([ran("mps", 1.6, predicted=1.3), ran("naive", 1.2, predicted=1.4)])
    assert panel.best_measured == pytest.approx(2 / 1.2)
    assert panel.regret == pytest.approx(1 - 1.2 / 1.6)
    assert panel.regret_of(Naive()) == 0


def test_of_plans_predicted_alike_any_may_be_chosen_so_their_mean_counts():
    (panel,) = panels([ran("mps", 1.6), ran("naive", 1.2)])
    assert panel.regret == pytest.approx((1 - 1.2 / 1.6) / 2)


def test_where_sharing_is_predicted_not_to_pay_the_choice_is_one_after_another():
    (panel,) = panels([ran("mps", 4.0, predicted=3.0)])
    assert (panel.best_measured, panel.regret) == (1.0, 0.0)
    assert panel.regret_of(Mps()) == pytest.approx(0.5)


def test_a_winner_measured_again_counts_with_the_mean_so_luck_sets_no_mark():
    lucky, again = ran("mps", 1.0), ran("mps", 1.6, run_id="set-1-mps-again")
    (panel,) = panels([lucky, again, ran("naive", 1.5)])
    (option,) = [each for each in panel.options if each.sharing == Mps()]
    assert option.times == 2
    assert option.measured == pytest.approx((2 / 1.0 + 2 / 1.6) / 2)


def test_one_after_another_is_as_fast_as_the_sets_own_solo_runs():
    slow = [
        replace(synthetic.run([each], "naive", 1.25, f"set-1-serial.{n}"), purpose="validation")
        for n, each in enumerate(PAIR)
    ]
    elsewhere = replace(slow[0], id="set-2-serial.0", tenants=slow[0].tenants)
    runs = [ran("mps", 1.6), ran("naive", 1.2)]
    (panel,) = panels(runs, [*slow, elsewhere])
    assert panel.options[0].sharing == Serial()
    assert panel.options[0].measured == pytest.approx(0.8)
    assert panels(runs)[0].options[0].measured == 1.0


def test_sets_that_ran_on_two_hosts_ran_one_after_another_as_on_both():
    solos = [
        replace(synthetic.run([each], "naive", slowdown, f"{solo}-00{n}"), purpose="solo")
        for solo, slowdown in (("panel-solo", 1.0), ("panel-elsewhere-solo", 3.0))
        for n, each in enumerate(PAIR)
    ]
    ends = ("mps", "naive", "mps-elsewhere")
    runs = [ran(end.split("-")[0], 1.6, run_id=f"panel-07-{end}") for end in ends]
    (panel,) = panels(runs, solos)
    assert panel.options[0].measured == pytest.approx(0.5)


@pytest.mark.parametrize("campaign", ["panel", "h100-panel"])
def test_solo_runs_of_a_campaign_are_how_all_its_sets_run_one_after_another(campaign):
    solos = [
        replace(synthetic.run([each], "naive", 1.25, f"{campaign}-solo-00{n}"), purpose="solo")
        for n, each in enumerate(PAIR)
    ]
    elsewhere = replace(synthetic.run([PAIR[0]], "naive", 5.0, "h100-solo-000"), purpose="solo")
    runs = [ran(way, 1.6, run_id=f"{campaign}-07-{way}") for way in ("mps", "naive")]
    (panel,) = panels(runs, [*solos, elsewhere])
    assert panel.options[0].measured == pytest.approx(0.8)


def test_a_set_that_is_best_one_after_another_is_measured_again_so_too():
    solo = replace(synthetic.run([PAIR[0]], "naive", 0.5, "panel-solo-000"), purpose="solo")
    again = replace(solo, id="panel-07-again.1", purpose="repeat", repeats=solo.id)
    slower = synthetic.run([PAIR[0]], "naive", 1.5).tenants
    jobs = [PAIR[0], PAIR[0]]
    runs = [ran(way, 3.0, run_id=f"panel-07-{way}", jobs=jobs) for way in ("mps", "naive")]
    (panel,) = panels(runs, [solo, replace(again, tenants=slower)])
    assert panel.options[0].measured == pytest.approx(1 / 1.0)


def test_copies_are_counted_as_the_command_line_does():
    (panel,) = panels([ran("mps", 2.0, jobs=[PAIR[0], PAIR[0], PAIR[1]])])
    assert panel.jobs == "resnet50-imagenet64-bs128:2 bert-base-finetune-bs16"


def test_a_set_that_ran_in_one_way_only_says_nothing_about_the_choice():
    document = regret_document(evaluation(ran("mps", 4.0)))
    assert (document["n"], document["mean"], document["worst"]) == (0, None, None)


def test_the_document_has_the_model_and_every_rule_to_beat():
    document = regret_document(evaluation(ran("mps", 1.6, 1.3), ran("naive", 1.2, 1.4)))
    assert document["n"] == 1
    assert document["mean"] == document["worst"] == pytest.approx(0.25)
    assert document["baselines"]["always-mps"] == pytest.approx(0.25)
    assert document["baselines"]["always-naive"] == 0
    assert document["baselines"]["equal-limits"] is None
    assert document["baselines_n"]["equal-limits"] == 0
    assert document["by_degree"][0]["degree"] == 2


def test_a_baseline_that_says_nothing_of_one_plan_does_not_choose():
    sets = choices(evaluation(ran("mps", 1.6, replayed=None), ran("naive", 1.2)))
    assert regrets(sets, PROFILES)["replay"].n == 0


OFFER = Offer(tuple(PAIR), tuple(map(parse_sharing, ("serial", "naive", "mps", "mps=50,50",
                                                     "mps=86,86", "mps=30,70"))))  # fmt: skip


@pytest.mark.parametrize("name", CHOOSERS)
def test_every_rule_picks_one_of_the_sharings_offered_or_none(name):
    assert CHOOSERS[name](OFFER) in OFFER.sharings
    assert CHOOSERS[name](Offer(tuple(PAIR), ())) is None


def test_equal_limits_are_those_nearest_an_equal_part():
    assert equal_limits(OFFER) == Mps((50.0, 50.0))


def test_a_rule_of_somebody_elses_is_one_line(monkeypatch):
    """It sees the profiles, and the sharings; never what was measured."""

    def packs_if_idle(offer):
        together = sum(each.busy_share for each in offer.profiles) <= 1
        return Naive() if together else Serial()

    monkeypatch.setitem(CHOOSERS, "packs-if-idle", packs_if_idle)
    sets = choices(evaluation(ran("mps", 1.6, 1.3), ran("naive", 1.2, 1.4)))
    assert regrets(sets, PROFILES)["packs-if-idle"].mean == pytest.approx(1 - 1 / (2 / 1.2))


def again(run, factor):
    """`run` once more, each step `factor` times as long."""
    slower = synthetic.run(PAIR, run.run.sharing, factor, f"{run.run.id}-again")
    return replace(run, run=replace(slower, purpose="repeat", repeats=run.run.id))


def test_a_choice_at_random_gives_away_the_mean_over_the_ways():
    (panel,) = panels([ran("mps", 1.6), ran("naive", 1.25)])
    best = 2 / 1.25
    assert panel.regret_at_random == pytest.approx(1 - (1 + 2 / 1.6 + best) / 3 / best)


def test_what_two_runs_differ_by_is_not_held_against_a_choice():
    once = ran("mps", 1.25, predicted=1.4)
    found, _ = chosen_and_drawn(
        evaluation(once, again(once, 1.25 / 0.9), ran("naive", 1.3, predicted=1.2))
    )
    assert found.noise == pytest.approx(0.1)
    lost = found.rules["model"].worst
    assert found.worst_beyond_noise("model") == pytest.approx(max(0.0, lost - 0.1))


def test_what_two_hosts_differ_by_is_not_taken_for_what_two_runs_do():
    once = ran("mps", 1.25)
    other = again(once, 1.5)
    moved = replace(other.run.provenance, date="2026-11-24T00:00:00+00:00")
    other = replace(other, run=replace(other.run, provenance=moved))
    found, _ = chosen_and_drawn(evaluation(once, other, ran("naive", 1.3)))
    assert found.noise is None


def test_a_set_is_clear_where_its_best_way_leads_the_next_by_more_than_the_noise():
    sets = panels([ran("mps", 1.6), ran("naive", 1.7)])
    found = {noise: judged(sets, PROFILES, noise) for noise in (0.01, 0.1, 0.9)}
    assert [each.clear["model"].n for each in found.values()] == [1, 0, 0]
    assert [each.differ for each in found.values()] == [1, 1, 0]
