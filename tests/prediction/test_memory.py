from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.memory_fit import Trial, fit_edges, memory_sigma, trials
from advisor.prediction.memory import MPS_SERVER_MIB, Context, Need, need, needs
from advisor.prediction.memory_edge import Edge, caches_mib, cautious_edge, edge_for
from advisor.sharing import Mps, Naive
from tests import synthetic

H200 = gpu("h200-141gb")
CONTEXT = Context(usual_mib=600, per_sm_mib=2.0)

SIZES = st.floats(100, 100_000)
MIXES = st.lists(st.builds(lambda least, more: Need(least + more, least), SIZES, SIZES), min_size=1)
EDGES = st.builds(
    Edge, share=st.floats(0, 1), width=st.floats(0, 1), sigma=st.floats(0.001, 0.1),
    victims=st.floats(1, 8),
)  # fmt: skip


@given(EDGES, MIXES, SIZES, SIZES)
def test_a_larger_card_is_never_a_larger_risk(edge, mix, capacity_mib, more_mib):
    assert edge.risk(mix, capacity_mib + more_mib) <= edge.risk(mix, capacity_mib)


@given(EDGES, MIXES, SIZES)
def test_no_job_is_refused_more_often_than_the_mix_runs_out(edge, mix, capacity_mib):
    risk = edge.risk(mix, capacity_mib)
    assert 0 <= risk <= 1
    assert all(0 <= each <= risk for each in edge.risk_of_each(mix, capacity_mib))


def test_at_the_edge_the_odds_are_even():
    mix = [Need(3000, 2000), Need(1000, 1000)]
    assert Edge(0.25, 0.1, 0.01, 1).risk(mix, 3250) == pytest.approx(0.5)


def test_without_outcomes_no_cache_is_counted_on_and_all_jobs_bear_the_whole_risk():
    mix, edge = [Need(3000, 2000), Need(1000, 500)], cautious_edge(0.01)
    assert edge.risk(mix, 4000) == pytest.approx(0.5)
    assert edge.risk(mix, 3500) > 0.99
    assert edge.risk_of_each(mix, 4000) == pytest.approx([0.5, 0.5])


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


def test_too_few_trials_or_one_outcome_only_teach_no_edge():
    assert fit_edges(list(outcomes(0.5, count=10))) == {}
    assert fit_edges([replace(each, refused=0) for each in outcomes(0.5)]) == {}


def test_one_mode_s_trials_teach_the_others_until_their_own_say_otherwise():
    naive, few = list(outcomes(0.2)), list(outcomes(0.9, count=12, mode="mps", seed=2))
    edges = fit_edges([*naive, *few])
    assert edges["mps"] == edges["naive"] == edges["mps-limits"]
    assert edges["mps"].share == pytest.approx(0.2, abs=0.15)
    edges = fit_edges([*naive, *outcomes(0.9, mode="mps", seed=2)])
    assert edges["mps"].share == pytest.approx(0.9, abs=0.15)
    assert edges["naive"].share == pytest.approx(0.2, abs=0.15)


def test_modes_that_run_out_alike_keep_one_edge():
    edges = fit_edges([*outcomes(0.5, seed=4), *outcomes(0.5, mode="mps", seed=5)])
    assert edges["mps"] == edges["naive"]


def test_who_has_the_larger_cache_is_refused_more_often_and_nobody_is_safe():
    mix = [Need(30_000, 30_000), Need(9000, 8000)]
    table, network = Edge(0.5, 0.1, 0.01, 1).risk_of_each(mix, 30_000)
    assert table == pytest.approx(0.25)
    assert network == pytest.approx(0.75)
    same = [Need(500, 500), Need(5000, 5000)]
    assert Edge(0.5, 0.1, 0.01, 1).risk_of_each(same, 1000) == pytest.approx([0.5, 0.5])


def test_a_few_processes_far_off_do_not_widen_the_interval_of_all():
    assert memory_sigma(np.array([0.01] * 95 + [0.4] * 5)) == pytest.approx(0.01 / 1.645)
    assert memory_sigma(np.zeros(9)) == 0.005
    assert memory_sigma(np.zeros(0)) == 0.02


def run_on_smaller_card(sharing="mps", **change):
    run = synthetic.run([synthetic.profile(), synthetic.profile()], sharing)
    return replace(
        run, **({"purpose": "memory", "capacity_mib": 24_576, "free_mib": 23_961.0} | change)
    )


def test_a_trial_knows_what_its_card_had_for_its_tenants():
    profile = synthetic.profile()
    run = run_on_smaller_card()
    (trial,) = trials({profile.name: profile}, [run], CONTEXT, H200)
    assert trial.capacity_mib == 23_961 - MPS_SERVER_MIB
    assert (trial.mode, trial.families, trial.refused) == ("mps", frozenset({"resnet"}), 0)


def test_a_tenant_that_died_on_a_smaller_card_was_refused_memory():
    profile, run = synthetic.profile(), run_on_smaller_card("naive")
    first, *others = run.tenants
    dead = replace(first, outcome="died", detail="killed by SIGABRT", windows=())
    (trial,) = trials(
        {profile.name: profile}, [replace(run, tenants=(dead, *others))], CONTEXT, H200
    )
    assert trial.refused == 1


def test_runs_on_the_whole_card_and_of_unknown_workloads_are_no_trials():
    profile = synthetic.profile()
    whole = synthetic.run([profile, profile])
    assert trials({profile.name: profile}, [whole], CONTEXT, H200) == ()
    assert trials({}, [run_on_smaller_card()], CONTEXT, H200) == ()


def test_a_process_alone_is_judged_by_trials_of_its_kind_else_by_mixes_else_with_caution():
    mixes, alone = Edge(0.7, 0.2, 0.01, 1.0), Edge(0.1, 0.1, 0.01, 1.0)
    assert edge_for({"naive": mixes, "serial": alone}, "mps", 1, 0.01) == alone
    assert edge_for({"naive": mixes}, "mps", 1, 0.01) == mixes
    assert edge_for({}, "mps", 1, 0.01) == cautious_edge(0.01)


def test_jobs_of_compute_instances_share_a_memory_though_each_is_alone_on_its_sms():
    mixes, alone = Edge(0.7, 0.2, 0.01, 1.0), Edge(0.1, 0.1, 0.01, 1.0)
    assert edge_for({"naive": mixes, "serial": alone}, "serial", 2, 0.01) == mixes


def test_jobs_that_were_tried_alone_teach_an_edge_of_their_own():
    alone = outcomes(0.1, mode="serial")
    found = fit_edges([*outcomes(0.8), *alone])
    assert found["serial"].share == pytest.approx(0.1, abs=0.15)
    assert found["naive"].share == pytest.approx(0.8, abs=0.15)
    assert fit_edges(list(outcomes(0.8)))["serial"] == found["naive"]


def test_a_run_of_one_job_on_a_smaller_card_is_a_trial_of_it_alone():
    job = synthetic.profile()
    run = replace(synthetic.run([job]), purpose="memory", capacity_mib=4000, free_mib=3500.0)
    (tried,) = trials({job.name: job}, [run], CONTEXT, H200)
    assert tried.mode == "serial"


def of_kind(kind):
    job = synthetic.profile()
    return replace(job, trace=replace(job.trace, classes=(kind,)))


def test_convolutions_give_up_their_caches_and_other_jobs_a_third_of_them():
    conv, gemm = (need(of_kind(kind), CONTEXT, under_mps=False) for kind in ("conv", "gemm"))
    assert gemm.cache_mib == pytest.approx(0.33 * conv.cache_mib)
    assert gemm.held_mib == conv.held_mib
    edge, between = Edge(0.3, 0.2, 0.005, 1.0), (conv.held_mib + conv.least_mib) / 2
    assert edge.risk([conv], between) < 0.5 < edge.risk([gemm], between)


def test_a_job_without_a_trace_is_taken_for_one_that_gives_up_little():
    bare = replace(synthetic.profile(), trace=None)
    assert need(bare, CONTEXT, under_mps=False).pliable == pytest.approx(0.33)


@given(MIXES)
def test_caches_of_a_mix_are_more_than_the_largest_and_less_than_all(mix):
    alone = [each.cache_mib for each in mix]
    assert max(alone) <= caches_mib(mix) * (1 + 1e-9)
    assert caches_mib(mix) <= sum(alone) * (1 + 1e-9)
