"""From what torch's profiler records to the compact trace of a step."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError
from advisor.hardware.partition import resident_blocks, sm_limits
from advisor.measure.inside import MARK
from advisor.measure.inside.routines import trace
from advisor.measure.inside.steps import Feeds
from advisor.measure.trace import (
    QUEUE_FREE_LAUNCHES,
    Event,
    Phase,
    TracedStep,
    events_in,
    kernel_class,
    kernel_trace,
    median_step,
    phases_without_waits,
    recorded_step,
    traced_round,
    traced_steps,
)
from advisor.workload.catalogue import workload
from advisor.workload.store import load_profile
from advisor.zoo.task import build

H200 = sm_limits("9.0")


class Recording:
    """A document as torch exports it, written by hand; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.phases: list[tuple[float, float]] = []
        self._correlation = 0

    def phase(self, ts: float, dur: float) -> "Recording":
        self.phases.append((ts, ts + dur))
        return self

    def launch(
        self, ts: float, name: str, *, at: float, dur: float, cat: str = "kernel", took: float = 5.0
    ) -> "Recording":
        """A launch at `ts` that took the host `took`, of what ran at `at` for `dur`."""
        self._correlation += 1
        correlation = {"correlation": self._correlation}
        self.events.append(Event(ts, took, "cuda_runtime", "cudaLaunchKernel", correlation))
        arguments: dict = {"stream": 7, "bytes": 2**20} | correlation
        if cat == "kernel":
            arguments |= {
                "grid": [40, 2, 1],
                "block": [32, 8, 1],
                "registers per thread": 32,
                "shared memory": 0,
                "blocks per SM": 0.61,
                "warps per SM": 4.9,
            }
        self.events.append(Event(at, dur, cat, name, arguments))
        return self

    def wait(self, ts: float, dur: float) -> "Recording":
        self.events.append(Event(ts, dur, "cuda_runtime", "cudaStreamSynchronize", {}))
        return self

    def step(self) -> TracedStep:
        (step,) = traced_steps(self.events, [self.phases], H200)
        return step


def one_step() -> Recording:
    return (
        Recording()
        .phase(1000, 100)
        .launch(1010, "Memcpy HtoD (Pinned -> Device)", at=1020, dur=10, cat="gpu_memcpy")
        .launch(1040, "ampere_sgemm_128x64_nn", at=1050, dur=30)
        .phase(1500, 200)
        .launch(1510, "Memset (Device)", at=1520, dur=1.234567, cat="gpu_memset")
        .launch(1600, "void at::native::reduce_kernel<512, 1>", at=1610, dur=300)
    )


def test_a_step_lists_kernels_copies_and_memsets_in_the_order_in_which_they_ran():
    step = one_step().step()
    trace = kernel_trace(step, (100e-6, 200e-6), 1)
    assert [trace.classes[index] for index in trace.class_of] == [
        "host copy",
        "gemm",
        "memset",
        "reduce",
    ]
    assert trace.duration_us == (10, 30, 1.23, 300)
    assert trace.blocks == (0, 80, 0, 80)
    assert trace.threads == (0, 256, 0, 256)
    assert trace.resident_blocks == (0, 8, 0, 8), "by the SM's limits, not Kineto's blocks per SM"


@pytest.mark.parametrize(
    ("name", "kib", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 60, "queued copy"),
        ("Memcpy HtoD (Pageable -> Device)", 70, "host copy"),
        ("Memcpy HtoD (Pinned -> Device)", 16, "queued copy"),
        ("Memcpy HtoD (Pinned -> Device)", 60, "host copy"),
        ("Memcpy DtoH (Device -> Pageable)", 1, "host copy"),
        ("Memcpy DtoD (Device -> Device)", 1, "copy"),
    ],
)
def test_small_copies_to_the_gpu_go_through_the_queue_of_kernels(name, kib, kind):
    recording = Recording().phase(0, 100)
    recording.launch(10, name, at=20, dur=10, cat="gpu_memcpy")
    recording.events[-1].arguments["bytes"] = kib * 1024
    recording.phase(200, 100)
    step = recording.step()
    assert [work.kind for work in step.work] == [kind]


def test_launches_count_from_the_start_of_the_step_without_pauses_between_its_parts():
    step = one_step().step()
    assert kernel_trace(step, (100e-6, 200e-6), 1).launch_us == (10, 40, 110, 200)
    assert kernel_trace(step, (50e-6, 50e-6), 1).launch_us == (5, 20, 52.5, 75), "unprofiled"


def test_time_on_the_gpu_counts_once_where_copies_and_kernels_overlap():
    recording = (
        Recording()
        .phase(0, 100)
        .launch(1, "k", at=10, dur=50)
        .launch(2, "Memcpy HtoD", at=30, dur=50, cat="gpu_memcpy")
        .launch(3, "k", at=40, dur=5)
        .phase(200, 100)
        .launch(201, "k", at=210, dur=10)
    )
    step = recording.step()
    assert step.busy_s == pytest.approx(80e-6)


def long_forward(kernels: int, blocked_us: float) -> TracedStep:
    """A launch every 10 us; from the 800th on each takes `blocked_us` more, waiting for room."""
    recording = Recording()
    at = 0.0
    for number in range(kernels):
        wait = blocked_us if number >= QUEUE_FREE_LAUNCHES else 0.0
        recording.launch(at, "k", at=50.0 * number, dur=50, took=5 + wait)
        at += 10 + wait
    recording.phase(0, at).phase(at + 1e6, 10)
    return recording.step()


def test_waits_for_room_among_pending_launches_are_no_work_of_the_host():
    step = long_forward(2000, blocked_us=40)
    assert step.phases[0].launches == 2000
    assert step.phases[0].host_us == pytest.approx(2000 * 10)
    assert step.work[-1].launch_us == pytest.approx(1999 * 10)


@pytest.mark.parametrize(
    ("measured_s", "profiled", "kept_s"),
    [
        ((1e-4, 3e-4), (Phase(200.0, 50), Phase(400.0, 700)), (1e-4, 3e-4)),
        ((1e-4, 9e-3), (Phase(200.0, 50), Phase(4000.0, 3000)), (1e-4, 2e-3)),
        ((1e-4, 1.5e-3), (Phase(200.0, 50), Phase(4000.0, 3000)), (1e-4, 1.5e-3)),
        ((9e-3,), (Phase(4000.0, 3000),), (4e-3,)),
    ],
    ids=["few launches", "waited for the GPU", "did not wait", "nothing to compare with"],
)
def test_a_part_counts_as_measured_unless_it_waited_for_the_gpu(measured_s, profiled, kept_s):
    assert phases_without_waits(measured_s, profiled) == pytest.approx(kept_s)


def test_a_script_that_reads_its_loss_is_not_taken_for_a_busy_host():
    recording = Recording().phase(0, 1000).launch(100, "k", at=110, dur=700)
    recording.wait(200, 600)
    recording.launch(900, "k", at=910, dur=5).phase(2000, 50)
    step = recording.step()
    assert step.phases[0].host_us == pytest.approx(400)
    assert step.phases[0].waits_us == (200,)
    assert [work.launch_us for work in step.work] == pytest.approx([100, 300])
    assert phases_without_waits((9e-4, 5e-5), step.phases) == pytest.approx((3e-4, 5e-5))
    assert kernel_trace(step, (2e-4, 5e-5), 1).waits_us == (100,)


def test_python_beside_short_waits_counts_in_full_although_the_profiler_slows_other_parts_more():
    slowed, with_waits = Phase(200.0, 50), Phase(5000.0, 50, (100.0,), 100.0)
    (_, seconds) = phases_without_waits((1e-4, 5e-3), (slowed, with_waits))
    assert seconds == pytest.approx(4.9e-3, rel=0.02)


@pytest.mark.parametrize("document", ["", "[]", '{"traceEvents": [1]}', '{"traceEvents": []}'])
def test_a_trace_that_is_damaged_or_lacks_its_marks_is_refused(document, tmp_path):
    (tmp_path / "trace").write_text(document)
    with pytest.raises(AdvisorError, match="no trace"), events_in(tmp_path / "trace") as events:
        traced_round(events, [1], [0], H200)


@pytest.mark.parametrize("round_steps", [2])
def test_torchs_own_profiler_marks_whole_rounds_as_we_read_them(round_steps, tmp_path):
    program, step = Feeds(), build(workload("mlp-toy-bs2"), "cpu")
    routine = trace(program, str(tmp_path / "trace"), round_steps, 3)
    answer = None
    next(routine)
    while answer is None:
        step()
        program.steps += 1
        try:
            routine.send(True)
        except StopIteration as end:
            answer = end.value
    assert answer == {"phases": [round_steps] * 3, "passes": [0] * 3}
    with events_in(tmp_path / "trace") as events:
        traced = traced_round(events, answer["phases"], answer["passes"], H200)
    assert len(traced.phases) == round_steps
    assert all(phase.host_us > 0 for phase in traced.phases)


RECORDINGS = Path(__file__).parent / "recorded"


def rounds(count: int, busy_us: float, round_us: float = 1000.0) -> Recording:
    """A program that launches two kernels a round, and waits for them."""
    made = Recording()
    for number in range(count):
        at = 500.0 + number * round_us
        made.launch(at, "ampere_sgemm_128x64_nn", at=at + 10, dur=busy_us / 2)
        made.launch(at + 20, "ampere_sgemm_128x64_nn", at=at + 10 + busy_us / 2, dur=busy_us / 2)
        made.wait(at + 30, round_us - 50)
    return made


@given(rounds_of_a_step=st.integers(1, 4), busy_us=st.floats(10, 900))
def test_a_step_of_whole_rounds_holds_their_kernels_whenever_it_begins(rounds_of_a_step, busy_us):
    step = recorded_step(rounds(14, busy_us).events, rounds_of_a_step * 1e-3, H200)
    assert len(step.work) == 2 * rounds_of_a_step
    assert step.busy_s == pytest.approx(rounds_of_a_step * busy_us * 1e-6)


def recorded_events(name, folder):
    (folder / "trace").write_bytes(gzip.decompress((RECORDINGS / f"{name}.json.gz").read_bytes()))
    with events_in(folder / "trace") as events:
        return events


def test_ten_rounds_of_a_real_search_are_a_step_that_repeats(tmp_path):
    step = recorded_step(recorded_events("evolution", tmp_path), 0.033, H200)  # on an H200
    kinds = Counter(work.kind for work in step.work)
    assert kinds["gemm"] == 10
    assert "other" not in kinds
    assert step.busy_s == pytest.approx(0.0323, rel=0.01)
    assert step.phases[0].host_us < 3000, "the host waits for the rest"


def test_a_step_that_is_no_part_that_repeats_is_refused_with_what_to_do():
    with pytest.raises(AdvisorError, match=r"do not repeat .* --batch-size"):
        recorded_step(rounds(14, 500.0).events, 0.1e-3, H200)


def test_every_step_of_a_real_recording_runs_the_kernels_of_the_shipped_profile(tmp_path):
    events = recorded_events("mlp-toy-bs128", tmp_path)
    marks = sorted(
        each for each in events if each.name.startswith(MARK) and each.category == "user_annotation"
    )
    phases = [(each.begin_us, each.end_us) for each in marks]  # fetch, forward, backward, update
    steps = traced_steps(events, [phases[at : at + 4] for at in range(0, len(phases), 4)], H200)
    kinds = [[work.kind for work in step.work] for step in steps]
    assert kinds == [kinds[0]] * 3
    assert "other" not in kinds[0]
    step, shipped = median_step(steps), load_profile("mlp-toy-bs128", "h200-141gb")
    trace = kernel_trace(step, tuple(phase.host_us * 1e-6 for phase in step.phases), 1)
    assert trace.blocks == shipped.trace.blocks
    assert trace.resident_blocks == shipped.trace.resident_blocks
    assert step.busy_s == pytest.approx(shipped.gpu_s, rel=0.1)


@pytest.mark.parametrize(
    ("capability", "launch", "blocks", "why"),  # worked out by hand from CUDA's calculator
    [
        ("9.0", (256, 32, 0), 8, "2,048 threads / 256"),
        ("9.0", (256, 33, 0), 6, "33 counts as 40: 48 warps of 1,280 registers; 8 a block"),
        ("9.0", (128, 32, 231_424), 1, "227 KiB and the system's 1 KiB are all there is"),
        ("8.0", (128, 32, 48 * 1024), 3, "164 / 49 KiB"),
        ("7.0", (128, 32, 48 * 1024), 2, "96 / 48 KiB, nothing reserved"),
        ("9.0", (100, 32, 0), 16, "100 threads take 4 warps"),
    ],
)
def test_as_many_blocks_fit_on_an_sm_as_the_scarcest_thing_allows(capability, launch, blocks, why):
    limits = sm_limits(capability)
    threads, registers, shared_bytes = launch
    fit = resident_blocks(limits, threads=threads, registers=registers, shared_bytes=shared_bytes)
    assert fit == blocks, why


@given(
    st.sampled_from(["7.0", "8.0", "8.6", "8.9", "9.0"]),
    st.integers(1, 1024),
    st.integers(0, 255),
    st.integers(0, 99 * 1024),
)
def test_a_block_that_asks_for_more_never_fits_more_often(capability, threads, registers, shared):
    limits = sm_limits(capability)

    def fit(threads, registers, shared):
        return resident_blocks(limits, threads=threads, registers=registers, shared_bytes=shared)

    once = fit(threads, registers, shared)
    assert 1 <= once <= limits.blocks
    assert fit(min(1024, threads + 32), registers, shared) <= once
    assert fit(threads, min(255, registers + 8), shared) <= once
    assert fit(threads, registers, shared + 1024) <= once


NATIVE = "void at::native::(anonymous namespace)::"
NAMES = {
    "conv": [
        "sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_kernel_cudnn",
        "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int)",
        f"{NATIVE}conv_depthwise2d_forward_kernel<3, float, int>",
    ],
    "gemm": [
        "ampere_sgemm_128x64_nn",
        "triton_tem_fused_addmm_relu_4",
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4>(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true>",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x64",
    ],
    "recurrent": ["void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2>"],
    "norm": [
        f"{NATIVE}RowwiseMomentsCUDAKernel<float>",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>",
        "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float>",
        f"{NATIVE}layer_norm_grad_input_kernel_vectorized<float>",
    ],
    "elementwise": [
        "triton_poi_fused_convolution_relu_0",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        f"{NATIVE}fused_dropout_kernel_vec<float, float, 1>",
    ],
    "reduce": [
        "triton_per_fused_native_layer_norm_backward_12",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>",
    ],
    "softmax": [f"{NATIVE}cunn_SoftMaxBackward<4, float, float, float>"],
    "loss": [f"{NATIVE}nll_loss_forward_reduce_cuda_kernel_2d<f>"],
    "pooling": [f"{NATIVE}max_pool_forward_nchw<float>"],
    "embedding": [
        f"{NATIVE}EmbeddingBag_updateOutputKernel_sum_mean<float>",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)",
    ],
    "sort": ["void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy900, false, long>"],
    "optimizer": [f"{NATIVE}multi_tensor_apply_kernel<FusedAdamMathFunctor>"],
    "layout": ["void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, cudnnData>"],
    "other": ["void some_kernel_of_a_user<float>(float*)"],
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_kernels_name_says_what_it_does(kind):
    assert {*map(kernel_class, NAMES[kind])} == {kind}
