"""Memory of a mix and the risk to run out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.gpus import gpu
from advisor.learn.memory_power import Trial, fit_edges, trials
from advisor.prediction.memory import (
    MPS_SERVER_MIB,
    Context,
    Edge,
    Need,
    caches_mib,
    cautious_edge,
    need,
    needs,
)
from advisor.sharing import Mps, Naive
from tests import synthetic

H200 = gpu("h200-141gb")
CONTEXT = Context(usual_mib=600, per_sm_mib=2.0)

SIZES = st.floats(100, 100_000)
MIXES = st.lists(st.builds(lambda least, more: Need(least + more, least), SIZES, SIZES), min_size=1)
EDGES = st.builds(
    Edge,
    share=st.floats(0, 1),
    width=st.floats(0, 1),
    sigma=st.floats(0.001, 0.1),
    victims=st.floats(1, 8),
)


@given(EDGES, MIXES, SIZES, SIZES)
def test_a_larger_card_is_never_a_larger_risk(edge, mix, capacity_mib, more_mib):
    assert edge.risk(mix, capacity_mib + more_mib) <= edge.risk(mix, capacity_mib)


@given(EDGES, MIXES, SIZES)
def test_no_job_is_refused_more_often_than_the_mix_runs_out(edge, mix, capacity_mib):
    risk = edge.risk(mix, capacity_mib)
    assert 0 <= risk <= 1
    assert all(0 <= each <= risk for each in edge.risk_of_each(mix, risk))


def test_without_outcomes_no_cache_is_counted_on_and_all_jobs_bear_the_whole_risk():
    mix, edge = [Need(3000, 2000), Need(1000, 500)], cautious_edge(0.01)
    assert edge.risk(mix, 4000) == pytest.approx(0.5)
    assert edge.risk(mix, 3500) > 0.99
    assert edge.risk_of_each(mix, edge.risk(mix, 4000)) == pytest.approx([0.5, 0.5])


def test_a_limit_makes_a_process_smaller_and_naive_sharing_does_not():
    profiles = [synthetic.profile(), synthetic.profile()]
    naive = needs(profiles, Naive(), CONTEXT, H200)
    limited = needs(profiles, Mps((50.0, 100.0)), CONTEXT, H200)
    assert naive[0].held_mib - limited[0].held_mib == pytest.approx(66 * 2.0)
    assert limited[1].held_mib == naive[1].held_mib


def outcomes(share, count=150, mode="naive", seed=1):
    """Trials as if mixes ran out where cards reach less than `share` of what caches give up."""
    random = np.random.default_rng(seed)
    for number in range(count):
        given_up = random.uniform(500, 4000)
        mix = (Need(20_000 + given_up, 20_000),)
        capacity_mib = 20_000 + given_up * random.uniform(-0.5, 1.5)
        edge_mib = 20_000 + given_up * random.normal(share, 0.05)
        family = "abc"[number % 3]
        yield Trial(mode, frozenset(family), mix, capacity_mib, int(capacity_mib < edge_mib))


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_the_edge_is_found_again_from_outcomes(share):
    edge = fit_edges(list(outcomes(share)))["naive"]
    assert edge.share == pytest.approx(share, abs=0.15)
    assert edge.victims == 1


def test_one_mode_s_trials_teach_the_others_until_their_own_say_otherwise():
    naive, few = list(outcomes(0.2)), list(outcomes(0.9, count=12, mode="mps", seed=2))
    edges = fit_edges([*naive, *few])
    assert edges["mps"] == edges["naive"] == edges["mps-limits"]
    assert edges["mps"].share == pytest.approx(0.2, abs=0.15)
    edges = fit_edges([*naive, *outcomes(0.9, mode="mps", seed=2)])
    assert edges["mps"].share == pytest.approx(0.9, abs=0.15)
    assert edges["naive"].share == pytest.approx(0.2, abs=0.15)


def test_a_run_on_a_smaller_card_is_a_trial_and_one_on_the_whole_card_is_none():
    profile = synthetic.profile()
    whole = synthetic.run([profile, profile])
    small = replace(whole, purpose="memory", capacity_mib=24_576, free_mib=23_961.0)
    first, second = small.tenants
    dead = replace(first, outcome="failed", detail="killed by SIGABRT", windows=())
    refused = replace(small, tenants=(dead, second))
    runs = [whole, small, refused]
    held, died = trials({profile.name: profile}, runs, CONTEXT, H200)
    assert held.capacity_mib == 23_961 - MPS_SERVER_MIB
    assert (held.mode, held.families) == ("mps", frozenset({"resnet"}))
    assert (held.refused, died.refused) == (0, 1)
    assert trials({}, runs, CONTEXT, H200) == ()
    assert fit_edges(list(outcomes(0.5, count=10))) == {}, "too few"


def test_convolutions_give_up_their_caches_and_other_jobs_a_third_of_them():
    job = synthetic.profile()
    conv, gemm = (
        need(replace(job, trace=replace(job.trace, classes=(kind,))), CONTEXT, under_mps=False)
        for kind in ("conv", "gemm")
    )
    assert gemm.cache_mib == pytest.approx(0.33 * conv.cache_mib)
    assert gemm.held_mib == conv.held_mib
    edge, between = Edge(0.3, 0.2, 0.005, 1.0), (conv.held_mib + conv.least_mib) / 2
    assert edge.risk([conv], between) < 0.5 < edge.risk([gemm], between)


@given(MIXES)
def test_caches_of_a_mix_are_more_than_the_largest_and_less_than_all(mix):
    alone = [each.cache_mib for each in mix]
    assert max(alone) <= caches_mib(mix) * (1 + 1e-9)
    assert caches_mib(mix) <= sum(alone) * (1 + 1e-9)
