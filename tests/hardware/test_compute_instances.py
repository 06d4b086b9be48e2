"""Compute instances inside one GPU instance, against what is published and an obvious twin."""

import json
from itertools import combinations_with_replacement, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.catalogue import catalogue, gpu
from advisor.hardware.gpu_partition import compute_profiles, compute_sets, place_compute
from tests.hardware.test_mig_layouts import FACTS, PUBLISHED, outside

INSTANCES = ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")


def can_hold(total, starts, sizes):
    """Whether some choice of starts puts `sizes` side by side in `total` slices: tries them all."""
    for at in product(*(starts[size] for size in sizes)):
        taken = [n for s, size in zip(at, sizes, strict=True) for n in range(s, s + size)]
        if len(set(taken)) == len(taken) and max(taken) < total:
            return True
    return False


def starts_of(key, profile):
    return {each.compute_slices: each.starts for each in compute_profiles(gpu(key), profile)}


@outside
def test_compute_instances_are_those_published_of_every_gpu():
    published = json.loads((Path(FACTS) / "mig_profiles.json").read_text())["gpus"]
    for name, facts in published.items():
        known = gpu(PUBLISHED[name])
        for each in facts["profiles"]:
            offers = {one.name: one for one in compute_profiles(known, each["name"])}
            listed = each.get("compute_instance_profiles") or []
            # A second 1c of Hopper's 2g, with more SMs, has the first one's name.
            listed = [row for row in listed if row["ci_profile_id"] != 7 or "c." not in row["name"]]
            if listed:
                assert set(offers) == {row["name"] for row in listed}
            for row in listed:
                mine = offers[row["name"]]
                assert mine.compute_slices == row["compute_slices"]
                assert len(mine.starts) == row["max_per_gpu_instance"]
                assert mine.sms in (None, row["sm_count"])


def test_a_7g_is_shared_by_a_3c_and_a_4c_in_either_order():
    assert place_compute(gpu("h200-141gb"), "7g.141gb", (3, 4)) == (4, 0)
    assert place_compute(gpu("a100-40gb"), "7g.40gb", (4, 3)) == (0, 4)
    names = [each.name for each in compute_profiles(gpu("a100-40gb"), "7g.40gb")]
    assert names == ["1c.7g.40gb", "2c.7g.40gb", "3c.7g.40gb", "4c.7g.40gb", "7g.40gb"]


def test_the_sms_of_the_third_study_s_split_are_those_of_4g_and_3g():
    sms = {each.compute_slices: each.sms for each in compute_profiles(gpu("a100-40gb"), "7g.40gb")}
    assert (sms[4], sms[3], sms[7]) == (56, 42, 98)


def test_sms_that_nobody_counted_are_unknown():
    parts = compute_profiles(gpu("h200-141gb"), "7g.141gb")
    assert [each.sms for each in parts] == [None, None, None, None, 132]


@pytest.mark.parametrize(
    ("profile", "sizes", "said"),
    [
        ("7g.141gb", (4, 4), "share one of its 7 compute slices"),
        ("7g.141gb", (3, 3, 2), "share one of its 7 compute slices"),
        ("7g.141gb", (7, 1), "share one of its 7 compute slices"),
        ("3g.71gb", (2, 2), "share one of its 3 compute slices"),
        ("1g.18gb", (1, 1), "share one of its 1 compute slices"),
    ],
)
def test_what_no_instance_holds_is_refused_with_a_reason(profile, sizes, said):
    with pytest.raises(NothingFits, match=said):
        place_compute(gpu("h200-141gb"), profile, sizes)


@pytest.mark.parametrize(
    ("profile", "sizes", "said"),
    [
        ("4g.71gb", (3, 1), r"cannot be cut into 3c\+1c. It offers 1c, 2c, 4c"),
        ("7g.141gb", (5, 2), "cannot be cut into"),
        ("3g.20gb", (1, 2), "no MIG profile of h200-141gb"),
    ],
)
def test_what_the_gpu_has_in_no_layout_is_wrong_use(profile, sizes, said):
    with pytest.raises(InvalidInput, match=said):
        place_compute(gpu("h200-141gb"), profile, sizes)


def test_where_nobody_has_said_what_there_is_only_the_whole_is_offered():
    assert compute_sets(gpu("rtx-pro-6000-96gb"), "4g.96gb") == ((4,),)
    with pytest.raises(InvalidInput, match="as far as is known"):
        place_compute(gpu("rtx-pro-6000-96gb"), "4g.96gb", (2, 2))


@pytest.mark.parametrize("profile", INSTANCES)
def test_the_full_ways_to_cut_up_an_instance_are_those_found_by_trying_all(profile):
    starts = starts_of("h200-141gb", profile)
    total = max(starts)
    held = {
        tuple(sorted(sizes, reverse=True))
        for count in range(1, total + 1)
        for sizes in combinations_with_replacement(starts, count)
        if sum(sizes) <= total and can_hold(total, starts, sizes)
    }
    full = {
        each for each in held
        if not any(tuple(sorted((*each, one), reverse=True)) in held for one in starts)
    }  # fmt: skip
    found = compute_sets(gpu("h200-141gb"), profile)
    assert len(set(found)) == len(found)
    assert set(found) == full


@given(st.sampled_from(INSTANCES), st.lists(st.sampled_from([1, 2, 3, 4, 7]), max_size=5))
def test_compute_instances_are_placed_wherever_they_can_be_and_never_overlap(profile, sizes):
    starts = starts_of("h200-141gb", profile)
    possible = all(size in starts for size in sizes) and (
        not sizes or can_hold(max(starts), starts, sizes)
    )
    try:
        at = place_compute(gpu("h200-141gb"), profile, sizes)
    except InvalidInput:
        assert not {*sizes} <= {*starts}
        return
    except NothingFits:
        assert not possible
        return
    taken = [n for start, size in zip(at, sizes, strict=True) for n in range(start, start + size)]
    assert len(set(taken)) == len(taken)
    assert possible


def test_every_instance_of_every_gpu_can_be_taken_whole():
    for known in catalogue().values():
        for row in known.mig:
            assert compute_sets(known, row.name)[0] == (row.compute_slices,)
