"""Time slicing as kernels that only pass time showed it on an H100."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.prediction.replay import Effort, TimeSlicing, replay_naive
from advisor.prediction.trace import ReplayTrace
from advisor.workload.store import model_path

FOLDER = Path("benchmarks/wait-latency")


def measured(name):
    return [
        each for each in json.loads((FOLDER / name).read_text())["rows"] if each["mates"] != "none"
    ]


ROWS = measured("h100-sxm-80gb.json")
COPIES = measured("copies-h200-141gb.json")
READS = measured("reads-h200-141gb.json")
H100 = gpu("h100-sxm-80gb")
SLICING = load_model(model_path(None)).of(H100).physics.slicing
ALONE = 2.46 / 2.75  # of the long kernel of `READS`, measured over what was asked
LAUNCH_US = 5  # as fast as a host launches
COPIED_MIB_S = 50e3
# Kernels that only pass time have no caches to fill, and this driver changes owners sooner.
OF_COPIES = TimeSlicing(slice_s=1.9e-3, patience_s=1e-5, switch_s=1e-4)


def script(kind):
    """The kernels of a kind, of which a host that does not wait queues two loops at most."""
    count, every_s = kind["count"], 1e-6 * (kind["every_us"] or LAUNCH_US)
    copies_s = [mib / COPIED_MIB_S for mib in [kind.get("mib")] if mib]
    duration_s = np.array(copies_s + [1e-6 * kind["us"]] * count)
    launch_s = np.array([0.0] * len(copies_s) + [each * every_s for each in range(count)])
    waits_s, host_s = np.full(len(duration_s), np.inf), count * every_s
    if kind["waits"]:
        waits_s[-1] = host_s
    return ReplayTrace(
        launch_s=launch_s, duration_s=duration_s, demand=np.ones(len(duration_s)),
        waves=np.ones(len(duration_s)), host_s=host_s, gap_s=1e-6, waits_s=waits_s,
        lead_s=2 * max(host_s, float(duration_s.sum())),
        in_turns=np.array([0.0] * len(copies_s) + [1.0] * count),
    )  # fmt: skip


def off(row, slicing=SLICING):
    """Logs of predicted over measured loops, shape (tenants,)."""
    replayed_s = replay_naive([script(each) for each in row["kinds"]], slicing, Effort(steps=20))
    return np.log(replayed_s / row["loops_s"])


def beside(row, **changed):
    """Seconds of a loop of the first of `row`, some columns of its kernels changed."""
    first, *mates = [script(each) for each in row["kinds"]]
    columns = {name: np.full(len(first.duration_s), value) for name, value in changed.items()}
    return replay_naive([replace(first, **columns), *mates], OF_COPIES, Effort(steps=20))[0]


def rows_of(*waiters):
    return [each for each in ROWS if each["waiter"] in waiters]


def test_loops_beside_mates_take_what_was_measured_whether_they_wait_or_not():
    errors = [off(each) for each in rows_of("sparse", "sparse, waits", "dense, waits")]
    assert np.abs(np.concatenate(errors)).mean() < 0.04
    assert max(np.abs(each).max() for each in errors) < 0.2


def test_whoever_waits_after_each_kernel_loses_a_turn_of_every_mate():
    (beside_one,) = {each["loops_s"][0] // 1e-4 for each in rows_of("one kernel, waits")
                     if each["mates"] == "long kernels"}  # fmt: skip
    assert beside_one * 1e-4 == pytest.approx(SLICING.slice_s + 2 * SLICING.switch_s, rel=0.1)


def test_slices_half_as_long_would_not_show_what_a_wait_costs():
    half = replace(SLICING, slice_s=SLICING.slice_s / 2, switch_s=SLICING.switch_s / 2)
    waits = rows_of("sparse, waits")
    assert np.mean([abs(off(each, half)[0]) for each in waits]) > 2 * np.mean(
        [abs(off(each)[0]) for each in waits]
    )


def test_loops_that_begin_with_a_copy_from_the_host_take_what_was_measured():
    errors = [off(each, OF_COPIES) for each in COPIES]
    assert np.abs(np.concatenate(errors)).mean() < 0.03
    assert max(np.abs(each).max() for each in errors) < 0.1


def test_a_long_copy_runs_in_the_slices_of_others_and_costs_no_more_than_a_short_one():
    rows = {each["waiter"]: each for each in COPIES if each["mates"] == "long kernels"}
    measured_s, replayed_s, as_kernels_s = np.array([
        (row["loops_s"][0], beside(row), beside(row, in_turns=1.0))
        for row in (rows["full, copy"], rows["full, big copy"])
    ]).T  # fmt: skip
    for long_over_short in (each[1] / each[0] for each in (measured_s, replayed_s)):
        assert long_over_short == pytest.approx(1, abs=0.01)
    assert as_kernels_s[1] > 1.05 * as_kernels_s[0]


def of_reads(row):
    """`row` with the first one's kernels as long as they were alone: its clock was set too fast."""
    first, *mates = row["kinds"]
    return row | {"kinds": [first | {"us": ALONE * first["us"]}, *mates]}


def test_the_gpu_is_passed_on_before_a_host_that_waited_launches_more():
    errors = [off(of_reads(each), OF_COPIES) for each in READS]
    assert np.abs(np.concatenate(errors)).mean() < 0.05
    assert max(np.abs(each).max() for each in errors) < 0.2


def test_reading_a_value_costs_what_waiting_costs():
    by_way = {
        way: np.array([each["loops_s"][0] for each in READS if each["waiter"].endswith(way)])
        for way in ("waits", "reads")
    }
    assert by_way["reads"] == pytest.approx(by_way["waits"], rel=0.02)


def test_a_queue_with_gaps_between_its_kernels_is_not_taken_for_an_idle_one():
    gapped = replace(script({"count": 50, "us": 20, "every_us": 0, "waits": False}), gap_s=3e-5)
    mate = script({"count": 50, "us": 100, "every_us": 0, "waits": False})
    slicing = TimeSlicing(slice_s=2e-3, patience_s=5e-6, switch_s=2e-4)
    gapped_s, mate_s = replay_naive([gapped, mate], slicing, Effort(steps=40))
    assert gapped_s == pytest.approx(2.2 * 50 * 50e-6, rel=0.05)
    assert mate_s == pytest.approx(2.2 * 50 * 100e-6, rel=0.05)
