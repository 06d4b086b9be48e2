"""Drawings of a GPU, of MIG instances and of jobs over time: every length is to scale."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.gpus import GpuCount, gpu
from advisor.hardware.mig import layouts
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.report.drawing import blocks, drawing
from advisor.report.fleet import by_gpu, lanes_of
from advisor.report.simulation import curves, timeline
from advisor.sharing import Mig, Serial, parse_sharing
from advisor.simulation.simulate import SimulatedJob, Simulation, Usage
from advisor.workload.job import Job
from tests import synthetic

H200 = gpu("h200-141gb")


def job(memory_mib: float) -> JobPrediction:
    step_s = Interval(0.09, 0.10, 0.12)
    return JobPrediction(
        job="resnet50-imagenet64-bs128",
        step_s=step_s,
        epoch_s=None,
        slowdown=1.5,
        memory_mib=memory_mib,
        memory_min_mib=0.8 * memory_mib,
        memory_interval_mib=Interval(0.9 * memory_mib, memory_mib, 1.1 * memory_mib),
        oom_probability=0.0,
    )


def mix(sharing: str, *memory_mib: float) -> MixPrediction:
    return MixPrediction(
        gpu=H200.key,
        sharing=parse_sharing(sharing),
        jobs=tuple(map(job, memory_mib)),
        memory_total_mib=sum(memory_mib),
        memory_capacity_mib=H200.memory_mib,
        oom_probability=0.0,
        weighted_speedup=1.0,
        power_w=None,
        gract=None,
        smact=None,
        confirmed_on_hardware=True,
    )


def spans(bars, kind="job"):
    return [(bar.start, bar.end) for bar in bars if bar.kind == kind]


@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50"])
def test_jobs_that_run_together_lie_end_to_end_in_memory(sharing):
    drawn = drawing(mix(sharing, 10 * 1024, 20 * 1024), H200)
    assert spans(drawn.memory) == [(0, 10), (10, 30)]
    assert drawn.memory_gib == pytest.approx(143771 / 1024)


def test_jobs_of_a_queue_lie_in_memory_where_they_follow_each_other():
    drawn = drawing(mix("mps/2[4,1,3,2]", 1024, 2 * 1024, 3 * 1024, 4 * 1024), H200)
    assert spans(drawn.memory) == [(4, 5), (4, 6), (0, 3), (0, 4)]


def test_a_limit_caps_the_sms_from_the_left_and_limits_may_overlap():
    drawn = drawing(mix("mps=25,100", 1024, 1024), H200)
    assert spans(drawn.sms) == [(0, 32), (0, 132)]  # SMs come in pairs
    assert "25 %" in drawn.sms[0].hint
    assert "overlap" in drawn.caption


def test_mig_instances_lie_where_their_memory_slices_are():
    drawn = drawing(mix("mig=3g.71gb,4g.71gb", 5 * 1024, 6 * 1024), H200)
    slice_gib = 143771 / 1024 / 8
    frames = spans(drawn.memory, "instance")
    assert frames[0] == pytest.approx((4 * slice_gib, 4 * slice_gib + 71168 / 1024))
    assert frames[1] == pytest.approx((0, 71168 / 1024))
    assert spans(drawn.memory) == [
        pytest.approx((4 * slice_gib, 4 * slice_gib + 5)),
        pytest.approx((0, 6)),
    ]
    # The 4g comes first in memory, so its 64 SMs are drawn before the 60 of the 3g.
    assert spans(drawn.sms) == spans(drawn.sms, "instance") == [(64, 124), (0, 64)]


def test_forty_copies_are_one_bar_that_counts_them_and_holds_all_their_memory():
    drawn = drawing(mix("mps", 2048, *[1024] * 40), H200)
    assert drawn.rows[1].startswith("2-41 · ")
    assert drawn.rows[1].endswith(" x40")
    assert spans(drawn.memory) == [(0, 2), (2, 42)]
    assert (drawn.memory[1].end_low, drawn.memory[1].end_high) == pytest.approx((38, 46))
    assert drawn.memory[1].hint == "each takes 1.00 GiB (0.90-1.10), together 40.0 GiB (36.0-44.0)"


@given(
    st.sampled_from(
        ["serial", "naive", "mps", "mps=14,28,43", "mps/2[3,1,2]", "mig=1g.18gb,2g.35gb,3g.71gb"]
    ),
    st.tuples(*[st.floats(min_value=1, max_value=16_000)] * 3),
)
def test_nothing_is_drawn_outside_the_gpu(sharing, memory_mib):
    drawn = drawing(mix(sharing, *memory_mib), H200)
    for bar in drawn.memory:
        assert 0 <= bar.start < bar.end <= drawn.memory_gib
    for bar in drawn.sms:
        assert 0 <= bar.start < bar.end <= drawn.sm_count
    assert [bar.row for bar in drawn.sms if bar.kind == "job"] == list(drawn.rows)
    assert all((bar.end_high or bar.end) <= drawn.used_gib for bar in drawn.memory)


def test_jobs_on_one_instance_lie_end_to_end_in_its_memory_and_on_the_same_sms():
    drawn = drawing(mix("mig=3g.71gb@4[1,3]/mps+4g.71gb@0[2]", 1024, 2048, 3072), H200)
    half = 143771 / 1024 / 2
    assert [start for start, _ in spans(drawn.memory)] == pytest.approx([half, 0, half + 1])
    assert [end for _, end in spans(drawn.memory)] == pytest.approx([half + 1, 2, half + 4])
    assert spans(drawn.sms) == [(64, 124), (0, 64), (64, 124)]
    frames = spans(drawn.memory, "instance")
    assert frames[0] == frames[2] != frames[1]
    assert any("shared by 2 jobs" in bar.hint for bar in drawn.sms)


@given(st.sampled_from(layouts(H200)))
def test_instances_and_what_is_free_fill_the_gpu_and_overlap_nowhere(layout):
    cut = sorted((each.start, each.end) for each in blocks(Mig(layout), H200))
    assert (cut[0][0], cut[-1][1]) == (0, H200.memory_slices)
    assert all(left[1] == right[0] for left, right in pairwise(cut))


JOB = Job(synthetic.profile())


def after(minutes):
    return Interval(54 * minutes, 60 * minutes, 66 * minutes)


# One job for 10 min, then another for 20.
IN_TURN = Simulation(
    counts=(GpuCount(H200.key, 1, 1),),
    sharing=Serial(),
    policy="first-come",
    at_once=None,
    jobs=(
        SimulatedJob(
            job=JOB, arrival_s=0, gpus=(0,), place=0, start_s=0, end_s=after(10), fair_s=1
        ),
        SimulatedJob(
            job=JOB, arrival_s=0, gpus=(0,), place=0, start_s=600, end_s=after(30), fair_s=1
        ),
    ),
    usage=(
        Usage(
            gpu=0,
            start_s=0,
            end_s=600,
            jobs=(0,),
            speeds=(1.0,),
            places=(0,),
            memory_mib=2048,
            gract=0.5,
            smact=0.25,
            power_w=300,
        ),
        Usage(
            gpu=0,
            start_s=600,
            end_s=1800,
            jobs=(1,),
            speeds=(1.0,),
            places=(0,),
            memory_mib=1024,
            gract=1.0,
            smact=None,
            power_w=500,
        ),
    ),
    makespan_s=after(30),
    energy_j=None,
    idle_powers_w=(None,),
    price_eur_per_gpu_hour=None,
    confirmed_on_hardware=True,
)
LINE = timeline(IN_TURN)


def test_each_job_runs_from_its_start_to_its_end_in_the_unit_that_reads_best():
    assert LINE.unit == "min"
    runs = [(span.row, span.start, span.end) for span in LINE.spans if span.kind == "runs"]
    assert runs == [(LINE.rows[0], 0, 10), (LINE.rows[1], 10, 30)]
    assert len(set(LINE.rows)) == 2, "copies have rows of their own"


def test_curves_change_when_the_jobs_that_run_do():
    busy, sms, memory, power = curves(IN_TURN, H200)
    assert busy.readings == [(0, 10, 50), (10, 30, 100)]
    assert not sms.readings, "not measured"
    assert [value for _, _, value in memory.readings] == [2, 1]
    assert memory.most == 2, "drawn as high as it is taken"
    assert power.most == H200.power_limit_w


def lived(gpu, start_min, end_min, **more):
    job = replace(JOB, **more)
    return SimulatedJob(
        job=job,
        arrival_s=0,
        gpus=(gpu,),
        place=0,
        start_s=60 * start_min,
        end_s=after(end_min),
        fair_s=60 * end_min,
    )


def placed(*jobs):
    return by_gpu(enumerate(jobs, start=1))


def test_rows_go_by_gpu_and_on_each_as_jobs_start():
    jobs = placed(lived(1, 0, 10), lived(0, 10, 30), lived(0, 0, 10))
    assert [(run.gpu, number) for number, run in jobs] == [(0, 3), (0, 2), (1, 1)]
    assert [row.partition(" · ")[0] for row in lanes_of(jobs).rows] == ["GPU 0", "GPU 0", "GPU 1"]
    assert lanes_of(jobs).end == 33, "where the last may end"
