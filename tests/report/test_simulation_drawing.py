"""A simulation drawn over time: every length is to scale, and nothing that was not measured is."""

from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.interval import Interval
from advisor.report.simulation_drawing import timeline
from advisor.sharing import Serial
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage
from advisor.workload.job import Job
from tests import synthetic

H200 = gpu("h200-141gb")
JOB = Job(synthetic.profile())


def after(minutes):
    return Interval(54 * minutes, 60 * minutes, 66 * minutes)


# One job for 10 min, then another for 20.
IN_TURN = Simulation(
    gpu=H200.key, sharing=Serial(), gpus=1, policy="first-come",
    jobs=(
        SimulatedJob(job=JOB, arrival_s=0, gpu=0, place=0, start_s=0, end_s=after(10)),
        SimulatedJob(job=JOB, arrival_s=0, gpu=0, place=0, start_s=600, end_s=after(30)),
    ),
    usage=(
        Usage(gpu=0, start_s=0, end_s=600, jobs=(0,), speeds=(1.0,), memory_mib=2048,
              gract=0.5, smact=0.25, power_w=300),
        Usage(gpu=0, start_s=600, end_s=1800, jobs=(1,), speeds=(1.0,), memory_mib=1024,
              gract=1.0, smact=None, power_w=500),
    ),
    makespan_s=after(30), energy_j=None, idle_power_w=None, price_eur_per_gpu_hour=None,
    confirmed_on_hardware=True,
)  # fmt: skip
LINE = timeline(IN_TURN, H200)


def test_each_job_runs_from_its_start_to_its_end_in_the_unit_that_reads_best():
    assert LINE.unit == "min"
    runs = [(span.row, span.start, span.end) for span in LINE.spans if span.kind == "runs"]
    assert runs == [(LINE.rows[0], 0, 10), (LINE.rows[1], 10, 30)]
    assert len(set(LINE.rows)) == 2, "copies have rows of their own"


def test_copies_that_run_alike_are_one_row_that_counts_them():
    twin = replace(IN_TURN.jobs[0], place=1)
    line = timeline(replace(IN_TURN, jobs=(IN_TURN.jobs[0], twin, IN_TURN.jobs[1])), H200)
    assert line.rows == (f"1-2 · {JOB.name} x2", f"3 · {JOB.name}")


def test_a_job_that_waits_is_seen_to():
    (wait,) = [span for span in LINE.spans if span.kind == "waits"]
    assert (wait.row, wait.start, wait.end) == (LINE.rows[1], 0, 10)
    assert wait.end_low is None
    assert wait.hint == "waits 10.0 min"


def test_where_an_end_may_lie_is_drawn_and_has_room():
    last = LINE.spans[-1]
    assert (last.end_low, last.end_high) == pytest.approx((27, 33))
    assert LINE.end == pytest.approx(33)


def test_curves_change_when_the_jobs_that_run_do():
    busy, _, memory, power = LINE.curves
    assert [(each.start, each.end, each.value) for each in busy.readings] == [
        (0, 10, 50), (10, 30, 100),
    ]  # fmt: skip
    assert [each.value for each in memory.readings] == [2, 1]
    assert memory.most == 2, "drawn as high as it is taken"
    assert power.most == H200.power_limit_w


def test_a_curve_with_a_gap_is_not_measured():
    busy, sms, *_ = LINE.curves
    assert busy.measured
    assert not sms.measured


def test_power_has_an_axis_though_nobody_says_what_the_gpu_may_draw():
    *_, power = timeline(IN_TURN, replace(H200, power_limit_w=None)).curves
    assert power.most == 500
