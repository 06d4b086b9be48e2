"""A GPU drawn with jobs in it: every length is to scale."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.report.gpu_drawing import drawing
from advisor.sharing import parse_sharing

H200 = gpu("h200-141gb")


def job(memory_mib: float) -> JobPrediction:
    step_s = Interval(0.09, 0.10, 0.12)
    return JobPrediction(
        job="resnet50-imagenet64-bs128", step_s=step_s, epoch_s=None, slowdown=1.5,
        memory_mib=memory_mib, memory_min_mib=0.8 * memory_mib,
        memory_interval_mib=Interval(0.9 * memory_mib, memory_mib, 1.1 * memory_mib),
        oom_probability=0.0,
    )  # fmt: skip


def mix(sharing: str, *memory_mib: float) -> MixPrediction:
    return MixPrediction(
        gpu=H200.key, sharing=parse_sharing(sharing), jobs=tuple(map(job, memory_mib)),
        memory_total_mib=sum(memory_mib), memory_capacity_mib=H200.memory_mib,
        oom_probability=0.0, weighted_speedup=1.0, power_w=None, gract=None, smact=None,
        confirmed_on_hardware=True,
    )  # fmt: skip


def spans(bars, kind="job"):
    return [(bar.start, bar.end) for bar in bars if bar.kind == kind]


def hints(bars):
    return [bar.hint for bar in bars if bar.kind == "job"]


@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50"])
def test_jobs_that_run_together_lie_end_to_end_in_memory(sharing):
    drawn = drawing(mix(sharing, 10 * 1024, 20 * 1024), H200)
    assert spans(drawn.memory) == [(0, 10), (10, 30)]
    assert drawn.memory_gib == pytest.approx(143771 / 1024)


def test_jobs_that_run_one_after_another_start_at_the_same_place():
    drawn = drawing(mix("serial", 10 * 1024, 20 * 1024), H200)
    assert spans(drawn.memory) == [(0, 10), (0, 20)]
    assert spans(drawn.sms) == [(0, 132), (0, 132)]


def test_how_far_the_memory_may_reach_is_drawn_from_the_same_place():
    second = drawing(mix("naive", 10 * 1024, 20 * 1024), H200).memory[1]
    assert (second.end_low, second.end_high) == pytest.approx((28, 32))


def test_a_limit_caps_the_sms_from_the_left_and_limits_may_overlap():
    drawn = drawing(mix("mps=25,100", 1024, 1024), H200)
    assert spans(drawn.sms) == [(0, 32), (0, 132)]  # SMs come in pairs
    assert "25 %" in drawn.sms[0].hint
    assert "overlap" in drawn.caption


def test_mig_instances_lie_where_their_memory_slices_are():
    drawn = drawing(mix("mig=3g.71gb,4g.71gb", 5 * 1024, 6 * 1024), H200)
    slice_gib = 143771 / 1024 / 8
    frames = spans(drawn.memory, "instance")
    assert frames[0] == pytest.approx((4 * slice_gib, 4 * slice_gib + 71424 / 1024))
    assert frames[1] == pytest.approx((0, 71424 / 1024))
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


def test_copies_in_turn_hold_the_memory_of_one():
    drawn = drawing(mix("serial", 1024, 1024, 1024), H200)
    assert spans(drawn.memory) == [(0, 1)]
    assert drawn.memory[0].hint == "each takes 1.00 GiB (0.90-1.10)"


@pytest.mark.parametrize("sharing", ["mps=14,28,28", "mig=1g.18gb,2g.35gb,2g.35gb"])
def test_copies_that_may_use_other_sms_have_rows_of_their_own(sharing):
    drawn = drawing(mix(sharing, 1024, 1024, 1024), H200)
    assert len(set(drawn.rows)) == (2 if "mps" in sharing else 3)


def test_memory_is_drawn_until_where_the_last_may_end():
    assert drawing(mix("mps", 1024, 2048), H200).used_gib == pytest.approx(1 + 2.2)
    in_an_instance = drawing(mix("mig=1g.18gb@0", 1024), H200)
    (frame,) = spans(in_an_instance.memory, "instance")
    assert in_an_instance.used_gib == frame[1]


def test_an_instance_whose_sms_nobody_counted_gets_its_share_of_the_slices():
    h20 = gpu("h20-96gb")
    drawn = drawing(mix("mig=4g.48gb", 1024), h20)
    assert spans(drawn.sms, "instance") == [(0, 39)]


@given(
    st.sampled_from(["serial", "naive", "mps", "mps=14,28,43", "mig=1g.18gb,2g.35gb,3g.71gb"]),
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
    assert "shared by 2 jobs" in hints(drawn.sms)[0]


def test_compute_instances_lie_side_by_side_in_the_sms_of_one_instance():
    drawn = drawing(mix("mig=7g.141gb/ci=4c[2]+3c[1]", 1024, 1024), H200)
    assert spans(drawn.memory) == [(1, 2), (0, 1)]
    (three, four) = spans(drawn.sms)
    assert (four[0], four[1], three[1]) == pytest.approx((0, three[0], 132))
    assert "3c of 7g.141gb" in hints(drawn.sms)[0]


def test_groups_one_after_another_start_at_the_same_place():
    drawn = drawing(mix("mps[1,3];serial[2]", 1024, 2048, 1024), H200)
    assert spans(drawn.memory) == [(0, 1), (0, 2), (1, 2)]
    assert "group" in drawn.caption
