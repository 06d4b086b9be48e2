"""From what torch's profiler exports to the compact trace of a step."""

import json
from dataclasses import replace

import pytest

from advisor.errors import AdvisorError
from advisor.measure.process.trainable import trained
from advisor.measure.solo.chrome_trace import steps_of_trace
from advisor.measure.solo.profiling_verbs import recorded
from advisor.measure.solo.trace_events import MARK
from advisor.measure.solo.traced_step import (
    QUEUE_FREE_LAUNCHES,
    Phase,
    TracedStep,
    kernel_trace,
    median_step,
    phases_without_waits,
    sm_limits,
)
from advisor.workload.named_workloads import workload
from advisor.zoo.task import build

PHASES = ("forward", "backward")
H200 = sm_limits("9.0")


class Recording:
    """A document as torch exports it, written by hand; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
        self._correlation = 0

    def mark(self, phase: str, ts: float, dur: float) -> "Recording":
        self.events.append(
            {"ph": "X", "cat": "user_annotation", "name": MARK + phase, "ts": ts, "dur": dur}
        )
        return self

    def launch(
        self, ts: float, name: str, *, at: float, dur: float, cat: str = "kernel", took: float = 5.0
    ) -> "Recording":
        """A launch at `ts` that took the host `took`, of what ran at `at` for `dur`."""
        self._correlation += 1
        correlation = {"correlation": self._correlation}
        self.events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts, "dur": took,
             "args": correlation}
        )  # fmt: skip
        arguments: dict = {"stream": 7, "bytes": 64} | correlation
        if cat == "kernel":
            arguments |= {
                "grid": [40, 2, 1], "block": [32, 8, 1], "registers per thread": 32,
                "shared memory": 0, "blocks per SM": 0.61, "warps per SM": 4.9,
            }  # fmt: skip
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": dur, "args": arguments}
        )
        return self

    def steps(self) -> tuple[TracedStep, ...]:
        document = json.loads(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return steps_of_trace(document, PHASES, H200)


def one_step() -> Recording:
    return (
        Recording()
        .mark("forward", 1000, 100)
        .launch(1010, "Memcpy HtoD (Pinned -> Device)", at=1020, dur=10, cat="gpu_memcpy")
        .launch(1040, "ampere_sgemm_128x64_nn", at=1050, dur=30)
        .mark("backward", 1500, 200)
        .launch(1510, "Memset (Device)", at=1520, dur=1.234567, cat="gpu_memset")
        .launch(1600, "void at::native::reduce_kernel<512, 1>", at=1610, dur=300)
    )


def test_a_step_lists_kernels_copies_and_memsets_in_the_order_in_which_they_ran():
    (step,) = one_step().steps()
    trace = kernel_trace(step, (100e-6, 200e-6))
    assert [trace.classes[index] for index in trace.class_of] == [
        "host copy", "gemm", "memset", "reduce"
    ]  # fmt: skip
    assert trace.duration_us == (10, 30, 1.23, 300)
    assert trace.blocks == (0, 80, 0, 80)
    assert trace.threads == (0, 256, 0, 256)
    assert trace.resident_blocks == (0, 8, 0, 8), "by the SM's limits, not Kineto's blocks per SM"


def test_a_copy_within_the_gpu_is_told_from_one_to_or_from_the_host():
    copies = ("HtoD (Pageable -> Device)", "DtoD (Device -> Device)", "DtoH (Device -> Pinned)")
    recording = one_step()
    for number, each in enumerate(copies):
        at = 1700 + number
        recording.launch(at, f"Memcpy {each}", at=2000 + 10 * number, dur=2, cat="gpu_memcpy")
    (step,) = recording.steps()
    assert [work.kind for work in step.work[-3:]] == ["host copy", "copy", "host copy"]


def test_a_trace_names_streams_where_there_are_several():
    (step,) = one_step().steps()
    assert kernel_trace(step, (100e-6, 200e-6)).stream_of is None
    streams = (20, 7, 20, 13)
    work = tuple(
        replace(one, stream=number) for one, number in zip(step.work, streams, strict=True)
    )
    apart = kernel_trace(replace(step, work=work), (100e-6, 200e-6))
    assert apart.stream_of == (0, 1, 0, 2)


def test_launches_are_told_from_the_steps_start_without_the_pauses_between_its_parts():
    (step,) = one_step().steps()
    assert kernel_trace(step, (100e-6, 200e-6)).launch_us == (10, 40, 110, 200)
    assert kernel_trace(step, (100e-6, 200e-6)).waits_us == (), "it was looked for"


def test_launches_keep_the_pace_of_a_host_that_nothing_profiles():
    (step,) = one_step().steps()
    assert kernel_trace(step, (50e-6, 50e-6)).launch_us == (5, 20, 52.5, 75)


def test_time_on_the_gpu_counts_once_where_copies_and_kernels_overlap():
    recording = (
        Recording()
        .mark("forward", 0, 100)
        .launch(1, "k", at=10, dur=50)
        .launch(2, "Memcpy HtoD", at=30, dur=50, cat="gpu_memcpy")
        .launch(3, "k", at=40, dur=5)
        .mark("backward", 200, 100)
        .launch(201, "k", at=210, dur=10)
    )
    (step,) = recording.steps()
    assert step.busy_s == pytest.approx(80e-6)


def test_what_another_thread_launched_belongs_to_the_part_during_which_it_was_launched():
    recording = one_step()
    recording.launch(1530, "void cudnn::bn_bw_1C11_kernel_new<float>", at=1540, dur=2)
    (step,) = recording.steps()
    assert [work.phase for work in step.work] == [0, 0, 1, 1, 1]


def test_a_kernel_without_a_known_launch_belongs_where_it_ran():
    recording = one_step()
    recording.events.append(
        {"ph": "X", "cat": "kernel", "name": "lonely", "ts": 1620, "dur": 1,
         "args": {"grid": [1, 1, 1], "block": [1, 1, 1]}}
    )  # fmt: skip
    (step,) = recording.steps()
    trace = kernel_trace(step, (100e-6, 200e-6))
    assert trace.launch_us[-1] == 200, "no earlier than what ran before it"


def test_of_a_runtime_call_and_the_driver_call_in_it_the_outer_one_is_the_launch():
    recording = one_step()
    recording.events.append(
        {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "ts": 1042, "dur": 1,
         "args": {"correlation": 2}}
    )  # fmt: skip
    (step,) = recording.steps()
    assert step.work[1].launch_us == 40


def test_what_ran_before_the_first_step_and_what_gpus_note_of_marks_is_left_out():
    recording = one_step()
    recording.launch(900, "early", at=910, dur=5)
    recording.events.append(
        {"ph": "X", "cat": "gpu_user_annotation", "name": MARK + "forward", "ts": 1020, "dur": 9}
    )
    (step,) = recording.steps()
    assert len(step.work) == 4


def test_several_steps_are_told_apart_and_the_one_with_the_median_busy_time_is_kept():
    recording = Recording()
    for number, duration in enumerate((30.0, 10.0, 20.0)):
        begin = 1000.0 * number
        recording.mark("forward", begin, 100).launch(begin + 1, "k", at=begin + 5, dur=duration)
        recording.mark("backward", begin + 500, 100)
    steps = recording.steps()
    assert [round(step.busy_s * 1e6) for step in steps] == [30, 10, 20]
    assert median_step(steps) is steps[2]


def long_forward(kernels: int, blocked_us: float) -> TracedStep:
    """A launch every 10 us; from the 800th on each takes `blocked_us` more, waiting for room."""
    recording = Recording()
    at = 0.0
    for number in range(kernels):
        wait = blocked_us if number >= QUEUE_FREE_LAUNCHES else 0.0
        recording.launch(at, "k", at=50.0 * number, dur=50, took=5 + wait)
        at += 10 + wait
    recording.mark("forward", 0, at).mark("backward", at + 1e6, 10)
    (step,) = recording.steps()
    return step


def of_a_graph(kernels: int) -> Recording:
    """A step whose second part launches one graph of `kernels` kernels, the last one listed first.

    Kineto ties all of them to the launch of the graph.
    """
    recording = Recording().mark("forward", 0, 20)
    recording.launch(5, "Memcpy DtoD", at=10, dur=2, cat="gpu_memcpy").mark("backward", 100, 60)
    for number in reversed(range(kernels)):
        recording.launch(110, f"ampere_sgemm_{number}", at=150.0 + 10 * number, dur=9, took=40)
    graph = next(e for e in recording.events if e["ph"] == "X" and e["ts"] == 110)
    graph["name"] = "cudaGraphLaunch"
    rest = [e for e in recording.events if e.get("ts") != 110]
    for event in rest:
        if event.get("cat") == "kernel":
            event["args"]["correlation"] = graph["args"]["correlation"]
    recording.events = [*rest, graph]
    return recording


def test_all_kernels_of_a_cuda_graph_are_launched_at_once_and_kept_in_the_order_they_ran():
    (step,) = of_a_graph(3).steps()
    assert [work.start_us for work in step.work] == [10, 150, 160, 170]
    assert kernel_trace(step, (20e-6, 60e-6)).launch_us == (5, 30, 30, 30)
    assert step.work[-1].resident_blocks == 8


def test_a_large_cuda_graph_counts_as_one_launch_for_which_the_queue_has_room():
    (step,) = of_a_graph(2000).steps()
    assert step.phases == (Phase(20, 1), Phase(60, 1))
    assert phases_without_waits((20e-6, 60e-6), step.phases) == (20e-6, 60e-6)


def test_a_compiled_kernel_is_found_though_the_driver_launches_it():
    recording = one_step()
    recording.launch(1700, "triton_poi_fused_add_relu_0", at=1950, dur=4)
    recording.events[-2] |= {"cat": "cuda_driver", "name": "cuLaunchKernelEx"}
    (step,) = recording.steps()
    assert (step.work[-1].kind, step.work[-1].launch_us) == ("elementwise", 200)


def test_waits_for_room_among_pending_launches_are_no_work_of_the_host():
    step = long_forward(2000, blocked_us=40)
    assert step.phases[0].launches == 2000
    assert step.phases[0].host_us == pytest.approx(2000 * 10)
    assert step.work[-1].launch_us == pytest.approx(1999 * 10)


def test_a_host_that_never_waits_is_timed_as_it_is():
    step = long_forward(2000, blocked_us=0)
    assert step.phases[0].host_us == pytest.approx(2000 * 10)


def test_a_script_that_reads_its_loss_is_not_taken_for_a_busy_host():
    recording = Recording().mark("forward", 0, 1000).launch(100, "k", at=110, dur=700)
    recording.events.append(
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": 200, "dur": 600}
    )
    recording.launch(900, "k", at=910, dur=5).mark("backward", 2000, 50)
    (step,) = recording.steps()
    assert step.phases[0].host_us == pytest.approx(400)
    assert step.phases[0].waits_us == (200,)
    assert [work.launch_us for work in step.work] == pytest.approx([100, 300])
    assert phases_without_waits((9e-4, 5e-5), step.phases) == pytest.approx((4e-4, 5e-5))
    assert kernel_trace(step, (2e-4, 5e-5)).waits_us == (100,)


def test_of_waits_that_a_window_cuts_only_what_lies_inside_is_no_work_of_the_host():
    recording = Recording().mark("forward", 1000, 1000).launch(1300, "k", at=1310, dur=900)
    for begin, duration in ((500, 600), (1700, 5000)):
        recording.events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": begin,
             "dur": duration}
        )  # fmt: skip
    (step,) = recording.mark("backward", 9000, 50).launch(9010, "k", at=9020, dur=5).steps()
    assert step.phases[0].host_us == pytest.approx(1000 - 100 - 300)
    assert step.phases[0].waits_us == (600,), "one that began before is for work from before"


def test_a_part_with_few_launches_counts_as_measured():
    profiled = (Phase(200.0, 50), Phase(400.0, 700))
    assert phases_without_waits((1e-4, 3e-4), profiled) == (1e-4, 3e-4)


def test_a_part_that_waited_for_the_gpu_counts_as_profiled_at_the_pace_of_the_others():
    profiled = (Phase(200.0, 50), Phase(4000.0, 3000))
    assert phases_without_waits((1e-4, 9e-3), profiled) == pytest.approx((1e-4, 2e-3))


def test_a_part_with_many_launches_that_did_not_wait_counts_as_measured():
    profiled = (Phase(200.0, 50), Phase(4000.0, 3000))
    assert phases_without_waits((1e-4, 1.5e-3), profiled) == pytest.approx((1e-4, 1.5e-3))


def test_where_every_part_has_many_launches_the_profile_bounds_what_was_measured():
    assert phases_without_waits((9e-3,), (Phase(4000.0, 3000),)) == pytest.approx((4e-3,))


def test_a_recording_without_whole_steps_is_refused():
    with pytest.raises(AdvisorError, match="1 part of steps"):
        Recording().mark("forward", 0, 1).steps()
    with pytest.raises(AdvisorError, match="0 parts of steps"):
        Recording().steps()


def test_a_trace_of_three_thousand_kernels_stays_compact():
    trace = kernel_trace(long_forward(3000, blocked_us=40), (0.0300001, 1e-5))
    from dataclasses import asdict

    assert len(json.dumps(asdict(trace), separators=(",", ":"))) < 3000 * 40


def test_torchs_own_profiler_marks_whole_steps_as_we_read_them():
    step = build(workload("mlp-toy-bs2"), "cpu")
    document, phases = trained(recorded(lambda: None), lambda: step)
    steps = steps_of_trace(document, phases, H200)
    assert len(steps) == 3
    assert all(len(each.phases) == 4 and each.phases[1].host_us > 0 for each in steps)
