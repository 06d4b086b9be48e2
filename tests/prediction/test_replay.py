from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from advisor.prediction.replay import (
    UNLOGGED,
    Effort,
    TimeSlicing,
    _columns,
    _horizon_s,
    replay_mps,
    replay_naive,
)
from advisor.prediction.replay_loops import mps_by_priority
from advisor.prediction.trace import ReplayTrace, demand
from tests import synthetic
from tests.prediction.slow_replay import SlowTenant, slow_mps, slow_naive

TICK_S = 1e-6
LONG = Effort(steps=60, events=400_000)
EAGER = TimeSlicing(slice_s=1e-3, patience_s=0.0, switch_s=0.0)


def script(duration, demand, host=0, launch=None, *, waves=None, waits=None):
    """A tenant whose times are in ticks of a microsecond; by default its blocks share no SMs."""
    launch = launch or [0] * len(duration)
    return ReplayTrace(
        launch_s=np.array(launch, dtype=float) * TICK_S,
        duration_s=np.array(duration, dtype=float) * TICK_S,
        demand=np.array(demand, dtype=float),
        waves=np.array(waves or demand, dtype=float),
        host_s=host * TICK_S,
        gap_s=0.0,
        lead_s=2 * host * TICK_S,
        waits_s=np.full(len(duration), np.inf) if waits is None else np.array(waits) * TICK_S,
        in_turns=np.ones(len(duration)),
    )


def with_a_copy(tenant):
    """The same, its second kernel, if it has one, being a copy from the host."""
    in_turns = np.ones(len(tenant.duration_s))
    in_turns[1:2] = 0
    return replace(tenant, in_turns=in_turns)


def slow(tenants):
    """The same tenants for the plain replay, each where in its step the fast one begins."""
    found = []
    for index, one in enumerate(tenants):
        ticks = [list(column / TICK_S) for column in (one.launch_s, one.duration_s, one.waits_s)]
        made = SlowTenant(*ticks, list(one.demand), list(one.waves), one.host_s / TICK_S,
                          one.lead_s / TICK_S, one.gap_s / TICK_S,
                          in_turns=list(one.in_turns))  # fmt: skip
        made.start_at(len(one.demand) * index // len(tenants))
        found.append(made)
    return found


# Demand and waves: an SM to each block, blocks that share SMs, grids of several waves.
GRIDS = ((0.1, 0.1), (0.3, 0.3), (0.6, 0.6), (1.0, 1.0), (0.6, 0.2), (0.9, 0.4), (1.0, 1.7), (1, 4))
ONE_WAVE = tuple(each for each in GRIDS if each[1] <= 1)


@st.composite
def scripts(draw, most=4, grids=GRIDS):
    """Tenants with a few kernels each, host bound or not."""
    found = []
    for _ in range(draw(st.integers(1, most))):
        kernels = draw(st.integers(1, 4))
        duration = draw(st.lists(st.integers(20, 300), min_size=kernels, max_size=kernels))
        grid = draw(st.lists(st.sampled_from(grids), min_size=kernels, max_size=kernels))
        demand, waves = (list(column) for column in zip(*grid, strict=True))
        host = draw(st.integers(0, 900))
        launch = sorted(draw(st.lists(st.integers(0, host), min_size=kernels, max_size=kernels)))
        waits = [draw(st.sampled_from((np.inf, np.inf, after))) for after in [*launch[1:], host]]
        found.append(script(duration, demand, host, launch, waves=waves, waits=waits))
    return found


def hardly_other(tenants):
    """The same tenants a few times, their kernels up to a thousandth longer or shorter."""
    drawn = np.random.default_rng(0)
    for _ in range(8):
        yield [
            replace(
                one, duration_s=one.duration_s * drawn.uniform(0.999, 1.001, len(one.duration_s))
            )
            for one in tenants
        ]


def test_alone_a_job_takes_the_slower_of_its_host_and_its_gpu_path():
    assert replay_mps([script([100], [1], 250)], [1], [1], 0, LONG) == pytest.approx([250e-6])
    assert replay_mps([script([300], [1], 250)], [1], [1], 0, LONG) == pytest.approx([300e-6])


def test_two_small_kernels_run_side_by_side_under_mps_and_take_turns_without():
    pair = [script([100, 100], [0.4, 0.4]), script([100, 100], [0.4, 0.4])]
    assert replay_mps(pair, [1, 1], [1, 1], 0, LONG) == pytest.approx([200e-6] * 2, rel=0.02)
    assert replay_naive(pair, EAGER, LONG) == pytest.approx([400e-6] * 2, rel=0.05)


def test_kernels_that_fit_on_the_same_sms_run_at_once_and_share_what_the_sms_do():
    pair = [script([100], [0.8], waves=[0.4]), script([100], [0.8], waves=[0.4])]
    assert replay_mps(pair, [1, 1], [1, 1], 0, LONG) == pytest.approx([160e-6] * 2, rel=0.02)


def test_a_grid_whose_blocks_do_not_all_fit_makes_a_small_one_wait_until_its_last_have_started():
    small = script([10], [0.1])
    behind_one, behind_four, behind_twenty = (
        replay_mps([small, script([400], [1], waves=[waves])], [1, 1], [1, 1], 0, LONG)[0]
        for waves in (1, 4, 20)
    )
    assert behind_one == pytest.approx(410e-6, rel=0.05)
    assert behind_four < 0.35 * behind_one
    assert behind_four < behind_twenty <= behind_one


def test_long_kernels_make_short_ones_wait_under_mps():
    short, long = replay_mps([script([10], [1]), script([1000], [1])], [1, 1], [1, 1], 0, LONG)
    assert short == pytest.approx(1010e-6, rel=0.05)
    assert long == pytest.approx(1010e-6, rel=0.05)


SHORT = script([10], [1])


def test_a_short_job_that_comes_first_waits_for_a_block_of_the_long_one_and_not_for_its_grid():
    pair = [SHORT, script([1000], [1], waves=[10])]
    for order, short_s in (((0, 1), 110e-6), ((0, 0), 1010e-6)):
        found = replay_mps(pair, [1, 1], [1, 1], 0, LONG, priorities=order)
        assert found[0] == pytest.approx(short_s, rel=0.15)


def test_a_kernel_whose_blocks_all_run_ends_whoever_comes_first():
    pair = [SHORT, script([1000], [1])]
    first = replay_mps(pair, [1, 1], [1, 1], 0, LONG, priorities=(0, 1))
    assert first == pytest.approx([1010e-6] * 2, rel=0.05)


def test_who_comes_late_gets_what_the_first_leaves():
    pair = [script([100], [1], host=200), script([1000], [1], waves=[100])]
    found = replay_mps(pair, [1, 1], [1, 1], 0, LONG, priorities=(0, 1))
    assert found == pytest.approx([200e-6, 2000e-6], rel=0.15)


def test_who_comes_late_takes_nothing_of_what_those_who_come_first_cede_to_each_other():
    firsts = [script([1000], [1], waves=[100]), script([20], [0.04])]
    _, among_firsts = replay_mps(firsts, [1, 1], [1, 1], 0.05, LONG)
    late = script([2000], [1], waves=[2])
    _, short, _ = replay_mps([*firsts, late], [1] * 3, [1] * 3, 0.05, LONG, priorities=(0, 0, 1))
    assert short == pytest.approx(among_firsts, rel=0.15)


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(scripts(), st.sampled_from([0, 1]), st.sampled_from([0.6, 1.0]), st.sampled_from([0, 0.1]))
def test_priorities_that_are_all_alike_change_no_digit(tenants, priority, limit, ceded):
    limits = [limit] * len(tenants)
    plain = replay_mps(tenants, limits, limits, ceded, LONG)
    alike = (priority,) * len(tenants)
    assert list(replay_mps(tenants, limits, limits, ceded, LONG, priorities=alike)) == list(plain)
    by_priority = partial(mps_by_priority, late=np.zeros(len(tenants), dtype=int))
    columns = _columns(tenants, limits, limits)
    horizon_s = _horizon_s(tenants, LONG)
    slower = by_priority(
        *columns, ceded=ceded, horizon_s=horizon_s, max_events=LONG.events, log=UNLOGGED
    )
    assert slower == pytest.approx(plain, rel=1e-12)  # another compilation, which may round apart


def test_a_job_limited_to_half_the_sms_needs_twice_as_long_if_it_only_computes():
    assert replay_mps([script([100], [1])], [0.5], [1], 0, LONG) == pytest.approx([200e-6])


def test_switching_between_processes_costs_both_of_them():
    pair = [script([5000], [1])] * 2
    free, dear = (
        replay_naive(pair, TimeSlicing(slice_s=1e-3, patience_s=0, switch_s=cost), LONG)
        for cost in (0.0, 0.5e-3)
    )
    assert free == pytest.approx([10e-3] * 2, rel=0.05)
    assert dear == pytest.approx([15e-3] * 2, rel=0.05)


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(scripts(), st.sampled_from([(1.0, 1.0), (0.5, 1.0), (0.5, 0.6)]), st.sampled_from([0, 0.1]))
def test_the_fast_replay_of_mps_agrees_with_the_plain_one(tenants, limit, ceded):
    limits, exponents = [[value] * len(tenants) for value in limit]
    plain = np.array(slow_mps(slow(tenants), limits, exponents, ceded, 60_000)) * TICK_S

    def differ(replayed):
        """By how much: each job, and all together."""
        fast = replay_mps(replayed, limits, exponents, ceded, LONG)
        return max(abs(fast / plain - 1)), abs((plain / fast).mean() - 1)

    # Who meets whose kernel can hang on a tick. Then the same jobs, hardly longer or shorter, fall
    # into either rhythm; all together they make as much progress in each.
    job, together = min(differ(each) for each in (tenants, *hardly_other(tenants)))
    assert job < 0.25
    assert together < 0.06


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(scripts(), st.sampled_from([1.0, 0.5]), st.sampled_from([0, 0.1]), st.integers(1, 14))
def test_the_fast_replay_of_priorities_agrees_with_the_plain_one(tenants, limit, ceded, order):
    tenants = [replace(one, gap_s=TICK_S) for one in tenants]  # as long as the shortest there is
    late = [order >> job & 1 for job in range(len(tenants))]
    limits, whole = [limit] * len(tenants), [1.0] * len(tenants)
    plain = slow_mps(slow(tenants), limits, whole, ceded, 60_000, late=late)
    alone = np.array([replay_mps([one], [limit], [1], 0, LONG)[0] for one in tenants])

    def differ(replayed):
        """By how much the paces differ, as a share of the pace alone: some jobs never run."""
        fast = replay_mps(replayed, limits, whole, ceded, LONG, priorities=late)
        return max(abs(alone / fast - alone / (np.array(plain) * TICK_S)))

    assert min(differ(each) for each in (tenants, *hardly_other(tenants))) < 0.15


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(scripts(), st.sampled_from([0, 50]), st.booleans())
def test_the_fast_replay_of_time_slices_agrees_with_the_plain_one(tenants, switch, copies):
    if copies:
        tenants = [with_a_copy(each) for each in tenants]
    slicing = TimeSlicing(slice_s=200 * TICK_S, patience_s=0.0, switch_s=switch * TICK_S)
    fast = replay_naive(tenants, slicing, LONG)
    plain = slow_naive(slow(tenants), 200, switch, 60_000)
    assert fast == pytest.approx(np.array(plain) * TICK_S, rel=0.15)


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(scripts(grids=ONE_WAVE))
def test_nobody_gets_faster_by_sharing_and_the_gpu_never_does_more_than_one_second_a_second(
    tenants,
):
    alone = [replay_mps([one], [1], [1], 0, LONG)[0] for one in tenants]
    shared = replay_mps(tenants, [1] * len(tenants), [1] * len(tenants), 0, LONG)
    assert (shared >= np.array(alone) * 0.97).all()
    work = [float((one.duration_s * one.demand).sum()) for one in tenants]
    assert sum(np.array(work) / shared) <= 1.03


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(scripts(most=3))
def test_equal_jobs_slow_down_equally(tenants):
    one = tenants[0]
    first, second = replay_mps([one, one], [1, 1], [1, 1], 0, LONG)
    assert first == pytest.approx(second, rel=0.1)


def test_steps_much_shorter_than_a_slice_get_their_turns_too():
    brief = [script([50], [1], 10)] * 4
    steps_s = replay_naive(brief, TimeSlicing(slice_s=1e-3, patience_s=3e-5, switch_s=1e-4), LONG)
    assert steps_s == pytest.approx(4 * 50e-6 * 1.1, rel=0.15)


@given(packing=st.floats(0.01, 0.99), exponent=st.floats(0.31, 1.2))
def test_a_replay_goes_the_same_way_whatever_the_last_digit_of_a_power(packing, exponent):
    played = synthetic.profile("mlp-toy-bs128", gpu_s=0.002, host_s=0.001, blocks=50)
    trace = replace(played.trace, resident_blocks=(3,) * len(played.trace.blocks))
    one, other = (demand(trace, 132, each) for each in (packing, np.nextafter(packing, 1)))
    assert (one == other).all()
    jobs = [script([100] * 3, [share] * 3, host=100) for share in (1.0, 0.7)]
    powers = exponent, np.nextafter(exponent, 1)
    steps = [
        replay_mps(jobs, [0.6, 0.6], [power] * 2, 0.05, Effort(events=500)) for power in powers
    ]
    assert (steps[0] == steps[1]).all()
