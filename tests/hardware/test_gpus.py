"""What the advisor knows of GPUs: the catalogue, what partitions have, attained rates."""

from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.gpus import catalogue, gpu, gpu_meant
from advisor.hardware.partition import (
    compute_profiles,
    partition_of,
    rates_of,
    sm_limits,
    whole_gpu,
)

H200 = gpu("h200-141gb")
ALL = sorted(catalogue().values(), key=lambda each: each.key)
NUMBERS = (
    "sms",
    "memory_mib",
    "reserved_mib",
    "bandwidth_gb_s",
    "l2_mib",
    "power_limit_w",
    "power_limit_min_w",
    "threads_per_sm",
    "max_mps_clients",
)


@pytest.mark.parametrize("known", ALL, ids=lambda each: each.key)
def test_a_gpu_of_the_catalogue_has_all_that_answers_need_and_a_source_for_each_number(known):
    given = {name for name in NUMBERS if getattr(known, name) is not None}
    given |= {"rates"} | ({"mig", "memory_slices"} if known.mig else set())
    # What compute instances there can be is known of some GPUs only; then that has a source.
    assert set(known.sources) - {"compute_instances"} == given
    assert known.mig or "compute_instances" not in known.sources
    assert all(source.strip() for source in known.sources.values())
    assert all(getattr(known, name) is None or getattr(known, name) > 0 for name in NUMBERS)
    nominal_gb = int(known.key.split("-")[-1].removesuffix("gb"))
    assert 0.9 * nominal_gb < known.memory_mib * 2**20 / 1e9 < 1.1 * nominal_gb
    assert {gpu_meant(name).key for name in (known.key.upper(), *known.products)} == {known.key}
    # Its architecture, and what an SM holds and computes at its clock.
    sm = sm_limits(known.compute_capability)
    assert (known.architecture, known.threads_per_sm) == (sm.architecture, sm.threads)
    rates, at_clock = known.rates, known.sms * sm.lanes * 2 * known.rates.clock_mhz * 1e-6
    # The H20's datasheet states more than its SMs can do at the clock of its kin.
    assert rates.fp32_tflops == pytest.approx(at_clock, rel=0.12 if "h20-" in known.key else 0.03)
    assert rates.fp32_tflops <= (rates.tf32_tflops or rates.fp16_tflops) <= rates.fp16_tflops
    faster = 1.1 if any("GeForce" in name for name in known.products) else 1.0
    for field in fields(rates):  # attained rates are no more than its maker's
        stated = getattr(rates, field.name)
        assert stated is None or getattr(rates_of(known), field.name) <= faster * stated
    for row in known.mig:  # no instance is larger than its GPU
        assert row.memory_mib <= known.memory_mib
        assert row.sms is None or row.sms <= known.sms
        assert 1 <= row.max_instances <= len(row.starts)
        assert all(0 <= s <= known.memory_slices - row.memory_slices for s in row.starts)
    for own in ({row.name for row in known.mig}, {row.profile_id for row in known.mig}):
        assert len(own) == len(known.mig)
    assert bool(known.mig) == (known.memory_slices > 0)


def test_no_product_belongs_to_two_gpus():
    products = [product for known in ALL for product in known.products]
    assert len(set(products)) == len(products)


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("A100-40GB", "a100-40gb"),
        ("A100 80GB", "a100-80gb"),
        ("h200", "h200-141gb"),
        ("NVIDIA H200", "h200-141gb"),
        ("h100 pcie", "h100-pcie-80gb"),
        ("3090", "rtx-3090-24gb"),
        ("RTX3090", "rtx-3090-24gb"),
        ("h100sxm", "h100-sxm-80gb"),
        ("H100 SXM5 80GB", "h100-sxm-80gb"),
        ("a100-80", "a100-80gb"),
        ("A100 40G", "a100-40gb"),
        ("T4", "t4-16gb"),
        ("2080 Ti", "rtx-2080-ti-11gb"),
        ("rtx 6000 ada", "rtx-6000-ada-48gb"),
        ("GB200 189GB", "gb200-189gb"),
    ],
)
def test_a_gpu_is_meant_by_the_names_that_people_use(word, key):
    assert gpu_meant(word).key == key


NONE, COUNTED = "`advisor gpus` lists all", "--gpu h200-141gb --gpus 8"


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("a100", "a100-40gb or a100-80gb"),
        ("H100", "h100-pcie-80gb"),
        ("gh200", "gh200-144gb"),
        *((word, NONE) for word in ("", "-", "pcie", "0", "mi300x", "rtx 3090 ti", "h200-80gb")),
        ("a100-40gb-x", NONE),
        *((word, COUNTED) for word in ("8xh200", "H200 x8", "h200:8", "h200*8")),
    ],
)
def test_what_is_no_gpu_or_may_be_several_is_refused_with_what_to_write(word, named):
    with pytest.raises(InvalidInput, match=named) as refusal:
        gpu_meant(word)
    assert isinstance(refusal.value, UnknownName) == (named in (NONE, COUNTED))


@given(st.text(max_size=30))
def test_any_word_means_a_gpu_or_is_refused(word):
    with suppress(InvalidInput):
        assert gpu_meant(word).key in catalogue()


GPUS = st.sampled_from(ALL)
OF_MIG = GPUS.filter(lambda each: each.mig)
LIMITS = st.floats(0.1, 100)


@given(GPUS)
def test_a_whole_gpu_has_all_that_its_catalogue_entry_says(known):
    whole = whole_gpu(known)
    assert whole.whole
    assert partition_of(known, None) == whole
    assert (whole.sms, whole.memory_mib) == (known.sms, known.usable_mib)


@given(OF_MIG, st.data())
def test_no_instance_has_more_than_the_gpu_nor_a_part_of_it_more_than_the_instance(known, data):
    profile = data.draw(st.sampled_from(known.mig)).name
    instance = partition_of(known, profile)
    assert 0 < instance.sm_share <= 1
    assert 0 < instance.bandwidth_share <= 1
    for offered in compute_profiles(known, profile):
        part = partition_of(known, profile, offered.compute_slices)
        assert part.sms <= instance.sms
        assert replace(part, sms=instance.sms) == instance, "only SMs are its own"


def test_the_largest_instance_is_the_whole_gpu_only_if_it_has_all_sms():
    assert partition_of(H200, "7g.141gb").whole
    assert partition_of(H200, "7g.141gb", 7).whole
    assert not partition_of(gpu("a100-40gb"), "7g.40gb").whole


@given(GPUS, LIMITS, LIMITS)
def test_a_lower_limit_leaves_no_more_sms_and_takes_nothing_else(known, one, other):
    whole = whole_gpu(known)
    less, more = (whole.limited(each) for each in sorted((one, other)))
    assert 2 <= less.sms <= more.sms <= whole.sms
    assert replace(less, sms=whole.sms) == whole


@pytest.mark.parametrize(
    ("limit", "sms"), [(14, 18), (28, 36), (43, 56), (57, 74), (71, 92), (86, 112)]
)
def test_limits_leave_the_sms_that_an_h200_gave(limit, sms):
    assert whole_gpu(H200).limited(limit).sms == sms


def test_a_gpu_that_only_its_driver_described_computes_as_its_kind_does():
    smaller = replace(H200, rates=None, key="smaller", sms=131)
    expected = rates_of(H200).fp32_tflops * 131 / 132
    assert rates_of(smaller).fp32_tflops == pytest.approx(expected)
    assert rates_of(smaller).bandwidth_gb_s == rates_of(H200).bandwidth_gb_s
