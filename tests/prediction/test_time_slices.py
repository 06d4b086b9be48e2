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

MEASURED = Path("benchmarks/wait-latency/h100-sxm-80gb.json")
ROWS = [each for each in json.loads(MEASURED.read_text())["rows"] if each["mates"] != "none"]
H100 = gpu("h100-sxm-80gb")
SLICING = load_model(model_path(None)).of(H100).physics.slicing
LAUNCH_US = 5  # as fast as a host launches


def script(kind):
    """The kernels of a kind, of which a host that does not wait queues two loops at most."""
    count, every_s = kind["count"], 1e-6 * (kind["every_us"] or LAUNCH_US)
    duration_s, waits_s = np.full(count, 1e-6 * kind["us"]), np.full(count, np.inf)
    host_s = count * every_s
    if kind["waits"]:
        waits_s[-1] = host_s
    return ReplayTrace(
        launch_s=np.arange(count) * every_s, duration_s=duration_s, demand=np.ones(count),
        waves=np.ones(count), host_s=host_s, gap_s=1e-6, waits_s=waits_s,
        lead_s=2 * max(host_s, float(duration_s.sum())),
    )  # fmt: skip


def off(row, slicing=SLICING):
    """Logs of predicted over measured loops, shape (tenants,)."""
    replayed_s = replay_naive([script(each) for each in row["kinds"]], slicing, Effort(steps=20))
    return np.log(replayed_s / row["loops_s"])


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


def test_a_queue_with_gaps_between_its_kernels_is_not_taken_for_an_idle_one():
    gapped = replace(script({"count": 50, "us": 20, "every_us": 0, "waits": False}), gap_s=3e-5)
    mate = script({"count": 50, "us": 100, "every_us": 0, "waits": False})
    slicing = TimeSlicing(slice_s=2e-3, patience_s=5e-6, switch_s=2e-4)
    gapped_s, mate_s = replay_naive([gapped, mate], slicing, Effort(steps=40))
    assert gapped_s == pytest.approx(2.2 * 50 * 50e-6, rel=0.05)
    assert mate_s == pytest.approx(2.2 * 50 * 100e-6, rel=0.05)
