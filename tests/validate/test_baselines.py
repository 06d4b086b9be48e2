from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.sharing import parse_sharing
from advisor.validate.baselines import (
    UNFITTED,
    as_if_alone,
    baselines,
    fair_share,
    summed_utilisation,
)
from advisor.validate.evaluate import evaluate
from advisor.validate.regret import regret_document
from advisor.validate.scoreboard import scoreboard
from tests import synthetic
from tests.fitted import fit
from tests.validate.campaign import PROFILES, advised_campaign, campaign

H200 = "h200-141gb"


@pytest.fixture(scope="module")
def known():
    """Every baseline, with constants of replay fitted to made-up runs."""
    return baselines(fit(PROFILES, campaign(), gpu(H200)).of(gpu(H200)).physics)


def profile(busy_share, name="resnet50-imagenet64-bs128"):
    return synthetic.profile(name, host_s=0.010, gpu_s=0.010 * busy_share)


def test_as_if_alone_every_job_keeps_its_solo_step():
    jobs = [profile(1.0), profile(0.2)]
    assert as_if_alone(jobs, parse_sharing("naive"), gpu(H200)) == (0.010, 0.010)


def test_by_fair_share_a_job_is_slowed_by_what_it_uses_over_what_it_gets():
    steps = fair_share([profile(1.0), profile(0.2)], parse_sharing("mps"), gpu(H200))
    assert steps == pytest.approx((0.020, 0.010))


def test_by_fair_share_a_limit_is_the_share():
    steps = fair_share([profile(1.0), profile(0.2)], parse_sharing("mps=25,10"), gpu(H200))
    assert steps == pytest.approx((0.040, 0.020))


def test_by_fair_share_one_after_another_costs_nothing():
    assert fair_share([profile(1.0)] * 2, parse_sharing("serial"), gpu(H200)) == (0.010, 0.010)


def test_fair_share_says_nothing_where_the_gpu_path_was_not_measured():
    blind = replace(profile(1.0), gpu_s=None)
    assert fair_share([blind, profile(1.0)], parse_sharing("naive"), gpu(H200)) is None


@pytest.mark.parametrize("name", ["fair-share", "summed-utilisation", "capacity", "replay"])
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


def test_by_summed_utilisation_jobs_slow_only_past_a_full_gpu():
    full = summed_utilisation([profile(1.0), profile(0.2)], parse_sharing("mps"), gpu(H200))
    room = summed_utilisation([profile(0.5), profile(0.2)], parse_sharing("naive"), gpu(H200))
    assert full == pytest.approx((0.012, 0.012))
    assert room == (0.010, 0.010)


def test_by_summed_utilisation_one_after_another_costs_nothing():
    steps = summed_utilisation([profile(1.0)] * 2, parse_sharing("serial"), gpu(H200))
    assert steps == (0.010, 0.010)


def test_a_rule_of_somebody_elses_is_scored_by_one_line(monkeypatch):
    """The line; evaluation then scores it and chooses by it as by the others."""

    def twice(profiles, _sharing, _gpu):
        return [2 * each.step_s for each in profiles]

    monkeypatch.setitem(UNFITTED, "twice", twice)
    evaluation = evaluate(PROFILES, [*campaign(), *advised_campaign()], gpu(H200))
    assert scoreboard(evaluation)[0].baselines["twice"] > 0
    assert regret_document(evaluation)["baselines"]["twice"] >= 0
