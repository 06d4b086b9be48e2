"""The order of blocks as kernels that only pass time showed it on an H200."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from advisor.prediction.engine_layout import BLOCKS
from advisor.prediction.replay import UNLOGGED, _columns, _horizon_s, replay_mps
from advisor.prediction.replay_loops import mps_in_order
from advisor.prediction.trace import ReplayTrace
from tests.prediction.slow_blocks import slow_in_order
from tests.prediction.test_replay import LONG, TICK_S, hardly_other, script, scripts, slow

FOLDER = Path("benchmarks/block-order")
MEASURED, SHAPES = (
    json.loads((FOLDER / name).read_text())
    for name in ("h200-141gb.json", "shapes-h200-141gb.json")
)
WINDOW_S = 0.4  # in which fewer than two loops ended where none is written
LAUNCH_S = 3e-6  # as fast as a host launches
IN_ORDER = replace(LONG, in_order=True)


def loop(name, measured):
    """The kernels of a kind, of which the host queues two loops at most."""
    kind, block_s = measured["kinds"][name], 1e-6 * np.array(measured["durations_us"][name])
    slots = measured["sms"] * kind.get("resident_blocks", measured["resident_blocks"])
    waves, count = round(kind["waves"] * slots) / slots, kind["count"]
    duration_s = block_s * np.ceil(waves)
    host_s = max(1e-6 * kind["every_us"], count * LAUNCH_S)
    return ReplayTrace(
        launch_s=np.arange(count) * LAUNCH_S, duration_s=duration_s, demand=np.full(count, 1e-3),
        waves=np.full(count, waves), host_s=host_s, gap_s=1e-6, waits_s=np.full(count, np.inf),
        lead_s=2 * max(host_s, float(duration_s.sum())), in_turns=np.ones(count),
    )  # fmt: skip


def predicted(row, measured=MEASURED):
    """Seconds of a loop of each; with all alike too, which products never ask of this replay."""
    loops, whole = [loop(each, measured) for each in row["kinds"]], [1.0] * len(row["kinds"])
    starts, kernels, paces = _columns(loops, whole, whole)
    kernels[BLOCKS] = np.concatenate([each.waves for each in loops])
    horizon_s, late = _horizon_s(loops, LONG), np.array(row["priorities"])
    return mps_in_order(starts, kernels, paces, late, horizon_s, LONG.events * 4, UNLOGGED)


@pytest.mark.parametrize("late", [0, 1])
def test_loops_take_what_was_measured_and_starve_where_they_did(late):
    errors, starved = [], []
    for row in MEASURED["rows"]:
        if len(row["kinds"]) > 1 and max(row["priorities"]) == late:
            for measured_s, loop_s in zip(row["loops_s"], predicted(row), strict=True):
                if measured_s is None:
                    starved.append(loop_s)
                else:
                    errors.append(abs(np.log(loop_s / measured_s)))
    assert np.mean(errors) < 0.05
    assert len(errors) > 100
    assert all(loop_s > WINDOW_S / 2 for loop_s in starved)
    assert bool(starved) == bool(late)


def test_what_limits_the_blocks_of_an_sm_matters_little_beside_how_many_it_holds():
    pairs = [row for row in SHAPES["rows"] if len(row["kinds"]) == 2]
    errors = np.abs([np.log(predicted(row, SHAPES) / row["loops_s"]) for row in pairs])
    shapes = [{name.split(", ")[0] for name in row["kinds"]} for row in pairs]
    unlike = np.array([len(each) > 1 for each in shapes])
    assert errors.mean() < 0.09
    assert errors[unlike].mean() < 0.10
    assert unlike.sum() > 50


def test_a_mix_with_priorities_is_replayed_in_order_where_that_is_asked():
    row = next(each for each in MEASURED["rows"] if max(each["priorities"]))
    loops, whole = [loop(each, MEASURED) for each in row["kinds"]], [1.0] * len(row["kinds"])
    asked = replay_mps(loops, whole, whole, 0.05, IN_ORDER, priorities=row["priorities"])
    assert asked == pytest.approx(predicted(row))
    alike = replay_mps(loops, whole, whole, 0.05, IN_ORDER)
    assert list(alike) == list(replay_mps(loops, whole, whole, 0.05, LONG))


def test_a_job_that_comes_late_has_its_turn_between_two_kernels_of_the_first():
    pair = [script([1000], [1], waves=[100]), script([100], [1])]
    steps_s = replay_mps(pair, [1, 1], [1, 1], 0, IN_ORDER, priorities=(0, 1))
    assert steps_s == pytest.approx([1100e-6] * 2, rel=0.01)


def test_a_job_that_comes_late_starves_beside_two_that_always_have_blocks_to_start():
    jobs = [script([1000], [1], waves=[100])] * 2 + [script([100], [1])]
    steps_s = replay_mps(jobs, [1] * 3, [1] * 3, 0, IN_ORDER, priorities=(0, 0, 1))
    assert steps_s[:2] == pytest.approx([2000e-6] * 2, rel=0.05)
    assert steps_s[2] > 0.01


def test_copies_run_beside_everything():
    pair = [script([1000], [1], waves=[100]), script([100], [0.0])]
    steps_s = replay_mps(pair, [1, 1], [1, 1], 0, IN_ORDER, priorities=(0, 1))
    assert steps_s == pytest.approx([1000e-6, 101e-6], rel=0.02)


@settings(derandomize=True, phases=[Phase.explicit, Phase.generate], deadline=None)
@given(scripts(), st.sampled_from([(1.0, 1.0), (0.5, 1.0), (0.5, 0.6)]), st.integers(1, 14))
def test_the_fast_replay_in_order_agrees_with_the_plain_one(tenants, limit, order):
    tenants = [replace(one, gap_s=TICK_S) for one in tenants]  # as long as the shortest there is
    late = [order >> job & 1 for job in range(len(tenants))]
    if len(set(late)) < 2:
        return
    limits, exponents = [[value] * len(tenants) for value in limit]
    plain = slow_in_order(slow(tenants), limits, exponents, 30_000, late=late)
    alone = np.array([replay_mps([one], limit[:1], limit[1:], 0, LONG)[0] for one in tenants])

    def differ(replayed):
        """By how much the paces differ, as a share of the pace alone: some jobs never run."""
        fast = replay_mps(replayed, limits, exponents, 0, IN_ORDER, priorities=late)
        return max(abs(alone / fast - alone / (np.array(plain) * TICK_S)))

    assert min(differ(each) for each in (tenants, *hardly_other(tenants))) < 0.1
