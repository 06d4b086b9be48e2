"""How long one kernel takes on another GPU, by what bounds it."""

from dataclasses import replace

import pytest

from advisor.hardware.attained_rates import rates_of
from advisor.hardware.catalogue import gpu
from advisor.prediction.kernel_transfer import RatedGpu, arithmetic, scaled_us, tflops
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.named_workloads import workload
from tests import synthetic


def rated(key):
    return RatedGpu(gpu(key), rates_of(gpu(key)))


H100, H200, A100, V100 = map(rated, ("h100-sxm-80gb", "h200-141gb", "a100-80gb", "v100-32gb"))
FP32, AMP = "bert-base-finetune-bs16", "bert-base-finetune-bs16-amp"


def slower(kind, us, there, *, name=FP32, blocks=100_000, here=H200, **counters):
    """How many times as long one kernel takes `there` as `here`."""
    trace = KernelTrace(
        classes=(kind,), class_of=(0,), launch_us=(0.0,), duration_us=(us,), blocks=(blocks,),
        threads=(256,), resident_blocks=(4,),
    )  # fmt: skip
    job = synthetic.profile(host_s=1e-6, gpu_s=1e-6 * us)
    seen = replace(job.counters, **{"tensor_active": 0.0, "dram_active": 0.0} | counters)
    job = replace(job, workload=workload(name), trace=trace, counters=seen)
    return float(scaled_us(job, here, there)[0]) / us


def test_what_moves_much_more_than_l2_holds_follows_the_bandwidth():
    assert slower("optimizer", 500, H100) == pytest.approx(4800 / 3350, rel=0.03)
    assert slower("optimizer", 500, A100) == pytest.approx(
        H200.rates.bandwidth_gb_s / A100.rates.bandwidth_gb_s, rel=0.05
    )


def test_what_fits_into_l2_does_not():
    assert slower("optimizer", 4, H100) == pytest.approx(1, abs=0.01)


def test_a_kernel_that_hardly_lasts_follows_the_clock():
    assert slower("elementwise", 1.5, A100) == pytest.approx(1980 / 1410, rel=1e-3)


def test_a_few_blocks_cannot_ask_for_all_of_the_bandwidth():
    assert slower("norm", 5000, A100, blocks=8) == pytest.approx(1980 / 1410, rel=0.05)


def test_a_copy_from_the_host_takes_what_the_host_makes_it_take():
    assert slower("host copy", 500, A100, blocks=0) == pytest.approx(1)
    assert slower("copy", 500, A100, blocks=0) > 1.3


def test_products_in_fp32_follow_the_rate_of_fp32():
    expected = H200.rates.fp32_tflops / A100.rates.fp32_tflops
    assert slower("gemm", 1000, A100) == pytest.approx(expected, rel=0.01)


def test_products_that_keep_tensor_cores_busy_follow_those():
    expected = H200.rates.fp16_tflops / A100.rates.fp16_tflops
    assert slower("gemm", 1000, A100, name=AMP, tensor_active=0.74) == pytest.approx(
        expected, rel=0.01
    )
    assert slower("gemm", 1000, A100, name=AMP, tensor_active=0.1) < 0.8 * expected


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_what_a_gpu_has_no_tensor_cores_for_is_computed_in_fp32(precision):
    assert tflops(V100.rates, precision) == V100.rates.fp32_tflops
    assert tflops(V100.rates, "fp16") == V100.rates.fp16_tflops


def test_torch_uses_tf32_for_convolutions_unless_it_is_told_otherwise():
    assert [arithmetic(kind, "default") for kind in ("conv", "gemm")] == ["tf32", "fp32"]
    assert {arithmetic("gemm", each) for each in ("tf32", "amp", "fp16")} == {
        "tf32", "bf16", "fp16",
    }  # fmt: skip
