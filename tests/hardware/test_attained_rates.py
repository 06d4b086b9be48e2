"""What a GPU attains, as known before and after its own rates were measured."""

from dataclasses import fields, replace

import pytest

from advisor.hardware.attained_rates import rates_of
from advisor.hardware.catalogue import catalogue, gpu
from advisor.workload.gpu_side import GpuSide, Operator, OperatorTime
from tests.measure.calibrate.recorded import calibration

H200 = gpu("h200-141gb")
TIMES = (
    ("linear", "1x1000x1000x1000", "fp32", 0.05),  # 40 TFLOP/s
    ("linear", "1x1000x1000x1000", "fp16", 0.004),  # 500
    ("copy", "65536x1024", "fp32", 0.125),  # 512 MiB
    ("empty", "1", "fp32", 0.002),
)


def swept(*times, **changes):
    times = tuple(OperatorTime(Operator(*each), ms) for *each, ms in times)
    side = GpuSide(l2_mib=60.0, sm_clock_mhz=1900, launch_us=5.0, times=times)
    return calibration(gpu_side=side, **changes)


def test_two_gpus_of_one_kind_compare_as_their_makers_say():
    here, there = gpu("a100-40gb"), gpu("a30-24gb")
    for field in ("fp32_tflops", "tf32_tflops", "fp16_tflops", "bandwidth_gb_s"):
        expected = getattr(there.rates, field) / getattr(here.rates, field)
        found = getattr(rates_of(there), field) / getattr(rates_of(here), field)
        assert found == pytest.approx(expected)


def test_an_sm_with_twice_the_lanes_attains_less_of_them():
    here, there = gpu("a100-40gb"), H200
    stated = there.rates.fp32_tflops / here.rates.fp32_tflops
    assert rates_of(there).fp32_tflops / rates_of(here).fp32_tflops < stated


def test_a_gpu_that_may_draw_little_does_not_keep_its_clock():
    freely = replace(gpu("l4-24gb"), power_limit_w=300)
    assert rates_of(gpu("l4-24gb")).fp32_tflops < 0.6 * rates_of(freely).fp32_tflops
    assert rates_of(gpu("l4-24gb")).bandwidth_gb_s == rates_of(freely).bandwidth_gb_s


def test_no_gpu_is_expected_to_attain_more_than_its_maker_says():
    for each in catalogue().values():
        for field in fields(each.rates):
            stated = getattr(each.rates, field.name)
            assert stated is None or getattr(rates_of(each), field.name) <= stated


def test_what_was_measured_replaces_what_is_stated_and_nothing_else():
    found = rates_of(H200, swept(*TIMES))
    assert found.fp32_tflops == pytest.approx(40)
    assert found.fp16_tflops == pytest.approx(500)
    assert found.bandwidth_gb_s == pytest.approx(2**29 / 0.125e6)
    assert found.launch_us == pytest.approx(2)
    assert found.tf32_tflops == rates_of(H200).tf32_tflops
    assert found.clock_mhz == H200.rates.clock_mhz


def test_a_gpu_without_tf32_has_no_rate_of_it_however_long_it_took():
    v100 = gpu("v100-32gb")
    asked = ("linear", "1x1000x1000x1000", "tf32", 0.15)
    assert rates_of(v100, swept(asked, *TIMES, gpu=v100.key)).tf32_tflops is None


@pytest.mark.parametrize("said", [None, calibration(), swept(*TIMES, gpu="a100-40gb")])
def test_a_calibration_without_rates_or_of_another_gpu_changes_nothing(said):
    assert rates_of(H200, said) == rates_of(H200)


def test_a_gpu_that_the_catalogue_knows_nothing_of_has_the_rates_it_was_measured_to_have():
    unknown = replace(H200, rates=None, compute_capability="7.5")
    assert rates_of(unknown) is None
    assert rates_of(unknown, swept(*TIMES[:2])) is None
    found = rates_of(unknown, swept(*TIMES))
    assert (found.tf32_tflops, found.clock_mhz) == (None, 1900)
    assert found.fp32_tflops == pytest.approx(40)


def test_a_gpu_that_only_its_driver_described_computes_as_its_kind_does():
    smaller = replace(H200, rates=None, key="smaller", sms=131)
    expected = rates_of(H200).fp32_tflops * 131 / 132
    assert rates_of(smaller).fp32_tflops == pytest.approx(expected)
    assert rates_of(smaller).bandwidth_gb_s == rates_of(H200).bandwidth_gb_s
