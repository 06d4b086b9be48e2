"""What choosing by the model, or by a simple rule, gives away of the best measured plan."""

from dataclasses import replace

import pytest

from advisor.hardware.gpus import gpu
from advisor.learn.scores import JobComparison, RunComparison
from advisor.prediction.prediction import Interval
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from advisor.workload.profile import LimitedRun, MpsProbe, Window
from research.baselines import (
    UNFITTED,
    as_if_alone,
    baselines,
    fair_share,
    miso,
    summed_utilisation,
)
from research.evaluate import Evaluation, Selection, evaluate
from research.regret import CHOOSERS, chosen_and_drawn, panels
from research.scoreboard import scoreboard
from tests import synthetic
from tests.fitted import fit
from tests.research.campaign import PROFILES as CAMPAIGN
from tests.research.campaign import advised_campaign, campaign

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
                job=each.name,
                family=each.workload.family,
                alone_s=each.step_s,
                measured_s=slowdown * each.step_s,
                predicted_s=Interval(*[predicted * each.step_s] * 3),
                baselines_s={"replay": replayed and replayed * each.step_s},
            )
            for each in jobs
        ),
    )


def evaluation(*advice, alone=()):
    chosen = Selection(
        gpu=gpu("h200-141gb"),
        profiles=PROFILES,
        runs=(),
        scored=(),
        unusable=(),
        advice=(),
        alone=alone,
        repeats=(),
    )
    return Evaluation(chosen=chosen, runs=(), advice=advice)


def test_regret_is_what_the_choice_gave_away_of_the_best_measured_plan():
    (panel,) = panels([ran("mps", 1.6, predicted=1.3), ran("naive", 1.2, predicted=1.4)])
    assert panel.regret_by("model") == pytest.approx(1 - 1.2 / 1.6)
    assert panel.regret_of(Naive()) == 0


def test_of_plans_predicted_alike_any_may_be_chosen_so_their_mean_counts():
    (panel,) = panels([ran("mps", 1.6), ran("naive", 1.2)])
    assert panel.regret_by("model") == pytest.approx(1 - 1.2 / 1.6)  # MPS has the lesser handicap
    (panel,) = panels([ran("mps=60,40", 1.6), ran("mps=40,60", 1.2)])
    assert panel.regret_by("model") == pytest.approx((1 - 1.2 / 1.6) / 2)


def test_where_sharing_is_predicted_not_to_pay_the_choice_is_one_after_another():
    (panel,) = panels([ran("mps", 4.0, predicted=3.0)])
    assert panel.regret_by("model") == 0.0
    assert panel.regret_of(Mps()) == pytest.approx(0.5)


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


def test_the_choices_of_the_model_and_of_every_rule_to_beat_are_judged():
    chosen, _ = chosen_and_drawn(evaluation(ran("mps", 1.6, 1.3), ran("naive", 1.2, 1.4)))
    model, *others = (chosen.rules[name] for name in ("model", "always-mps", "always-naive"))
    assert (chosen.sets, model.n) == (1, 1)
    assert model.mean == model.worst == pytest.approx(0.25)
    assert [rule.mean for rule in others] == [pytest.approx(0.25), 0]
    assert (chosen.rules["equal-limits"].mean, chosen.rules["equal-limits"].n) == (None, 0)


SHARINGS = [*map(parse_sharing, ("serial", "naive", "mps", "mps=50,50", "mps=86,86", "mps=30,70"))]


@pytest.mark.parametrize("name", CHOOSERS)
def test_every_rule_picks_one_of_the_sharings_offered_or_none(name):
    assert CHOOSERS[name](tuple(PAIR), SHARINGS) in SHARINGS
    assert CHOOSERS[name](tuple(PAIR), []) is None


H200 = "h200-141gb"


@pytest.fixture(scope="module")
def known():
    """Every baseline, with constants of replay fitted to made-up runs."""
    return baselines(fit(CAMPAIGN, campaign(), gpu(H200)).of(gpu(H200)).physics)


def profile(busy_share, name="resnet50-imagenet64-bs128"):
    return synthetic.profile(name, host_s=0.010, gpu_s=0.010 * busy_share)


@pytest.mark.parametrize("name", ["fair-share", "summed-utilisation", "miso", "capacity", "replay"])
def test_no_baseline_but_alone_speaks_of_mig(known, name):
    mig = parse_sharing("mig=3g.71gb,4g.71gb")
    assert known[name]([profile(1.0)] * 2, mig, gpu(H200)) is None


@pytest.mark.parametrize(
    "name", ["alone", "fair-share", "summed-utilisation", "capacity", "replay"]
)
@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50"])
def test_by_every_baseline_a_job_that_hardly_uses_the_gpu_is_not_slowed_by_its_like(
    known, name, sharing
):
    idle = [synthetic.profile(host_s=0.010, gpu_s=0.0005, blocks=8, kernels=10)] * 2
    steps = known[name](idle, parse_sharing(sharing), gpu(H200))
    assert steps == pytest.approx((0.010, 0.010), rel=0.1)


def test_a_rule_of_somebody_elses_is_scored_by_one_line(monkeypatch):
    """The line; evaluation then scores it and chooses by it as by the others."""

    def twice(profiles, _sharing, _gpu):
        return [2 * each.step_s for each in profiles]

    monkeypatch.setitem(UNFITTED, "twice", twice)
    evaluation = evaluate(CAMPAIGN, [*campaign(), *advised_campaign()], gpu(H200))
    assert next(scoreboard(evaluation)).baselines["twice"] > 0
    assert chosen_and_drawn(evaluation)[0].rules["twice"].mean >= 0


@pytest.mark.parametrize(
    ("rule", "sharing", "expected"),
    [
        (as_if_alone, "naive", (0.010, 0.010)),
        (fair_share, "mps", (0.020, 0.010)),
        (fair_share, "mps=25,10", (0.040, 0.020)),
        (fair_share, "serial", (0.010, 0.010)),
        (summed_utilisation, "mps", (0.012, 0.012)),
        (summed_utilisation, "serial", (0.010, 0.010)),
    ],
)
def test_rules_that_are_one_line_of_arithmetic(rule, sharing, expected):
    steps = rule([profile(1.0), profile(0.2)], parse_sharing(sharing), gpu(H200))
    assert steps == pytest.approx(expected)


def test_by_misos_rule_a_job_runs_as_its_probe_says_of_its_part():
    """A quarter of the SMs halves its pace: so does a half by the root, and less in proportion."""
    whole, quarter = (
        LimitedRun(limit, round(1.32 * limit), (Window(1.0, 100 / slower),))
        for limit, slower in ((100.0, 1.0), (25.0, 2.0))
    )
    alone = replace(profile(1.0), mps=MpsProbe(whole, (quarter,), profile(1.0).memory))

    def slowdowns(sharing, jobs):
        steps_s = miso([alone] * jobs, parse_sharing(sharing), gpu(H200))
        return [step_s / alone.step_s for step_s in steps_s]

    assert slowdowns("mps", 4) == pytest.approx([2.0] * 4)
    assert slowdowns("mps=50,12.5", 2) == pytest.approx([2**0.5, 4.0])
    assert slowdowns("serial", 2) == [1.0, 1.0]


def test_a_rule_never_chooses_a_way_that_it_does_not_cover():
    (panel,) = panels([ran("mps", 1.6, replayed=1.9), ran("naive", 1.2, replayed=None)])
    assert panel.regret_by("replay") == pytest.approx(1 - 1.2 / 1.6)
    (panel,) = panels([ran("mps", 1.6, replayed=None), ran("naive", 1.2, replayed=None)])
    assert panel.regret_by("replay") is None
