"""What jobs have of a GPU: all of it, what a limit leaves, an instance, a part of an instance."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import catalogue, gpu
from advisor.hardware.gpu_partition import compute_profiles, partition_of, whole_gpu

H200 = gpu("h200-141gb")
GPUS = st.sampled_from(sorted(catalogue().values(), key=lambda each: each.key))
WITH_MIG = GPUS.filter(lambda each: each.mig)
LIMITS = st.floats(0.1, 100)


@given(GPUS)
def test_a_whole_gpu_has_all_that_its_catalogue_entry_says(known):
    whole = whole_gpu(known)
    assert whole.whole
    assert partition_of(known, None) == whole
    assert (whole.sms, whole.bandwidth_gb_s, whole.l2_mib, whole.memory_mib) == (
        known.sms, known.bandwidth_gb_s, known.l2_mib, known.usable_mib
    )  # fmt: skip


@given(WITH_MIG, st.data())
def test_no_instance_has_more_than_the_gpu_nor_a_part_of_it_more_than_the_instance(known, data):
    profile = data.draw(st.sampled_from(known.mig)).name
    instance = partition_of(known, profile)
    assert 0 < instance.sm_share <= 1
    assert 0 < instance.bandwidth_share <= 1
    for offered in compute_profiles(known, profile):
        part = partition_of(known, profile, offered.compute_slices)
        assert part.sms <= instance.sms
        assert replace(part, sms=instance.sms) == instance, "only SMs are its own"


def test_a_memory_slice_brings_an_eighth_of_bandwidth_and_l2():
    small, half = partition_of(H200, "1g.18gb"), partition_of(H200, "3g.71gb")
    assert (small.sms, small.bandwidth_gb_s, small.l2_mib) == (16, 600, 6.25)
    assert (half.sms, half.bandwidth_gb_s, half.l2_mib) == (60, 2400, 25)


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


@given(WITH_MIG, st.data())
def test_a_limit_of_all_takes_nothing(known, data):
    part = partition_of(known, data.draw(st.sampled_from(known.mig)).name)
    assert part.limited(100) == part


@pytest.mark.parametrize(
    ("limit", "sms"), [(14, 18), (28, 36), (43, 56), (57, 74), (71, 92), (86, 112)]
)
def test_limits_leave_the_sms_that_an_h200_gave(limit, sms):
    assert whole_gpu(H200).limited(limit).sms == sms
