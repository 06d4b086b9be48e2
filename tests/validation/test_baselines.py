from dataclasses import replace

import pytest

from advisor.gpu.catalogue import gpu
from advisor.prediction.fit import fit
from advisor.sharing import parse_sharing
from advisor.validation.baselines import as_if_alone, baselines, fair_share
from tests import synthetic
from tests.validation.campaign import PROFILES, campaign

H200 = "h200-141gb"


@pytest.fixture(scope="module")
def known():
    """Every baseline, with constants of replay fitted to made-up runs."""
    return baselines(fit(PROFILES, campaign(), gpu(H200)).physics)


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


@pytest.mark.parametrize("name", ["fair-share", "capacity", "replay"])
def test_no_baseline_but_alone_speaks_of_mig(known, name):
    mig = parse_sharing("mig=3g.71gb,4g.71gb")
    assert known[name]([profile(1.0)] * 2, mig, gpu(H200)) is None


@pytest.mark.parametrize("name", ["alone", "fair-share", "capacity", "replay"])
@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50"])
def test_by_every_baseline_a_job_that_hardly_uses_the_gpu_is_not_slowed_by_its_like(
    known, name, sharing
):
    idle = [synthetic.profile(host_s=0.010, gpu_s=0.0005, blocks=8, kernels=10)] * 2
    steps = known[name](idle, parse_sharing(sharing), gpu(H200))
    assert steps == pytest.approx((0.010, 0.010), rel=0.1)
