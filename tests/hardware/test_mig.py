"""MIG geometry, against published tables and an obvious, slow twin."""

import json
from dataclasses import replace
from itertools import combinations_with_replacement, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError, InvalidInput, NothingFits
from advisor.hardware.gpus import Gpu, catalogue, gpu
from advisor.hardware.mig import largest_layouts, layouts, place, placement_sets, profile_of
from advisor.hardware.partition import compute_profiles, compute_sets, place_compute
from advisor.sharing import Instance
from tests.hardware.mig_twin import (
    instances,
    maximal,
    multisets,
    places,
    rows_of,
    valid_sets,
)

MIG_GPUS = sorted(key for key, known in catalogue().items() if known.mig)


def geometry(key: str) -> tuple:
    """The slices, profiles and rules of a GPU that decide which layouts it has."""
    rows = gpu(key).mig
    return tuple((r.compute_slices, r.starts, r.max_instances, "+me" in r.name) for r in rows)


# One GPU of each geometry.
DISTINCT = sorted({geometry(key): key for key in reversed(MIG_GPUS)}.values())
FACTS = Path(__file__).parents[3] / "shared" / "facts"
outside = pytest.mark.skipif(not FACTS.exists(), reason="the published tables lie elsewhere")
# The published table's names of GPUs, and the catalogue's.
PUBLISHED = {
    "A100-40GB": "a100-40gb",
    "A100-80GB": "a100-80gb",
    "A30-24GB": "a30-24gb",
    "H100-SXM5-80GB": "h100-sxm-80gb",
    "H100-PCIe-80GB": "h100-pcie-80gb",
    "H100-NVL-94GB": "h100-nvl-94gb",
    "H100-96GB / GH200-96GB": "gh200-96gb",
    "GH200-144GB": "gh200-144gb",
    "H200-141GB": "h200-141gb",
    "H20-96GB": "h20-96gb",
    "B200-180GB": "b200-180gb",
    "GB200-186GB": "gb200-186gb",
    "B300": "b300-269gb",
    "GB300": "gb300-278gb",
    "RTX-PRO-6000-Blackwell-96GB": "rtx-pro-6000-96gb",
}


def only(key: str, names: tuple[str, ...]) -> Gpu:
    known = gpu(key)
    return replace(known, mig=tuple(row for row in known.mig if row.name in names))


def sets_of(known: Gpu, driver=None):
    """What the advisor finds: how many valid sets, and the maximal ones as sets of places."""
    found = placement_sets(known, known.mig, (), driver)
    assert len(set(map(places, found.maximal))) == len(found.maximal)
    return found.valid, set(map(places, found.maximal))


@pytest.mark.parametrize("driver", [None, 470])
@pytest.mark.parametrize("key", DISTINCT)
def test_every_gpu_s_layouts_agree_with_trying_every_set_of_places(key, driver):
    # A driver too old for a profile does not count here: only its rule on a 4g and a 3g does.
    known = gpu(key)
    ageless = replace(known, mig=tuple(replace(row, min_driver=None) for row in known.mig))
    every = valid_sets(rows_of(known), driver)
    assert sets_of(ageless, driver) == (len(set(every)), maximal(every))


@outside
def test_every_published_gpu_is_in_the_catalogue_as_published():
    published = json.loads((FACTS / "mig_profiles.json").read_text())["gpus"]
    assert set(published) == set(PUBLISHED)
    for name, facts in published.items():
        known = gpu(PUBLISHED[name])
        assert known.memory_slices == facts["memory_slices"]
        rows = {row.name: row for row in known.mig}
        assert list(rows) == [each["name"] for each in facts["profiles"]]
        for each in facts["profiles"]:
            row = rows[each["name"]]
            wanted = [f"{start}:{row.memory_slices}" for start in row.starts]
            assert wanted == each["placements"]
            assert row.max_instances == each["max_instances"]
            assert (row.profile_id, row.compute_slices, row.memory_slices, row.sms) == (
                each["profile_id"],
                each["compute_slices"],
                each["memory_slices"],
                each["sm_count"],
            )
            least = min(row.memory_mib, each["memory_mib"] or row.memory_mib)
            assert row.memory_mib == least, "the smallest that any driver reported"
            assert row.min_driver == (each["min_driver"] and int(each["min_driver"][1:]))


# Memory in GiB that public transcripts of `nvidia-smi mig -lgip` show, of all drivers.
TRANSCRIPTS = {
    ("b200-180gb", "1g.23gb"): (22.00, 20.50),
    ("b200-180gb", "2g.45gb"): (44.25,),
    ("rtx-pro-6000-96gb", "1g.24gb"): (23.62, 23.12),
    ("rtx-pro-6000-96gb", "2g.48gb"): (46.5,),
    ("h200-141gb", "2g.35gb"): (32.5, 32.25),
    ("h200-141gb", "7g.141gb"): (140, 139.75),
    ("h100-sxm-80gb", "1g.10gb"): (9.75, 9.625),
    ("h100-sxm-80gb", "3g.40gb"): (39.5, 39.25),
    ("a100-80gb", "7g.80gb"): (79, 78.5),
    ("a100-40gb", "3g.20gb"): (19.62, 19.5),
    ("h100-nvl-94gb", "3g.47gb"): (46.38, 46.125),
    ("gb200-189gb", "1g.24gb"): (20,),
    ("gb200-186gb", "1g.23gb"): (22, 20),
    ("a30-24gb", "4g.24gb"): (23.5, 23.44),
}


@pytest.mark.parametrize(("key", "name"), TRANSCRIPTS)
def test_an_instance_has_no_more_memory_than_any_driver_gave_it(key, name):
    least_mib = min(TRANSCRIPTS[key, name]) * 1024
    assert 0.999 * least_mib <= profile_of(gpu(key), name).memory_mib <= least_mib


def test_an_estimated_memory_is_below_that_of_every_transcript():
    shares = [
        (row, row.memory_mib / (card.memory_mib * row.memory_slices / card.memory_slices))
        for card in map(gpu, MIG_GPUS)
        for row in card.mig
    ]
    for row, share in shares:
        reported = [
            other
            for known, other in shares
            if known.memory_slices == row.memory_slices and not known.memory_estimated
        ]
        assert not row.memory_estimated or share <= min(reported) + 0.001


@outside
def test_every_published_layout_is_found_and_no_other():
    published = json.loads((FACTS / "mig_layouts.json").read_text())
    newer, older = published["a100_40gb_driver_ge_510"], published["a100_40gb_driver_lt_510"]
    wanted = {
        frozenset(
            (name, int(place.split(":")[0]))
            for name, _, place in (word.partition("@") for word in line.split())
        )
        for line in newer["maximal_layouts"]
    }
    known = only("a100-40gb", tuple(newer["profiles"]))
    assert sets_of(known, 580) == (newer["counts"]["valid_placement_sets_nonempty"], wanted)
    count, found = sets_of(known, 470)
    assert count == older["counts"]["valid_placement_sets_nonempty"]
    both = frozenset({("4g.20gb", 0), ("3g.20gb", 4)})
    assert found == wanted - {both}
    for never in published["never_valid_on_a100_40gb"]:
        words = [word.partition("x") for word in never.split("+")]
        names = [n for one, x, name in words for n in ([name] * int(one) if x else [one])]
        with pytest.raises(NothingFits):
            place(known, tuple(map(Instance, names)))


@pytest.mark.parametrize(
    ("wanted", "placed"),
    [
        ("1g.18gb,2g.35gb@0,3g.71gb", "1g.18gb@2,2g.35gb@0,3g.71gb@4"),
        # The 3g could take slices 0 to 3, but then the 4g has none.
        ("3g.71gb,4g.71gb", "3g.71gb@4,4g.71gb@0"),
    ],
)
def test_a_given_start_is_kept_and_a_choice_that_would_block_the_rest_taken_back(wanted, placed):
    assert place(gpu("h200-141gb"), instances(wanted)) == instances(placed)


@given(st.data())
def test_a_set_is_refused_only_if_no_set_of_places_holds_it(data):
    known = gpu(data.draw(st.sampled_from(["a30-24gb", "a100-40gb", "rtx-pro-6000-96gb"])))
    names = st.sampled_from([row.name for row in known.mig])
    wanted = sorted(data.draw(st.lists(names, min_size=1, max_size=8)))
    every = valid_sets(rows_of(known))
    try:
        placed = place(known, tuple(map(Instance, wanted)))
    except NothingFits:
        assert tuple(wanted) not in multisets(every)
    else:
        assert [each.profile for each in placed] == wanted
        assert places(placed) in every


@pytest.mark.parametrize(
    ("key", "never", "reason"),
    [
        ("a100-40gb", "4g.20gb,4g.20gb", "at most"),
        ("a100-40gb", "3g.20gb,3g.20gb,1g.5gb", "share one of its 8 memory slices"),
        ("a100-40gb", "7g.40gb,1g.5gb", "share one of its 8 memory slices"),
        ("a100-40gb", ",".join(["1g.5gb"] * 8), "at most"),
        ("a100-40gb", "1g.5gb+me,1g.5gb+me", "at most"),
        ("a30-24gb", "1g.6gb+me,2g.12gb+me", r"at most one instance with \+me"),
        ("h200-141gb", "3g.20gb", r"3g\.71gb"),
        ("h200-141gb", "3g.73gb", r"3g\.71gb"),
        ("h200-141gb", "3g.71gb@2", "starts at 0, 4"),
        ("l4-24gb", "1g.5gb", "no MIG"),
    ],
)
def test_instances_that_a_gpu_cannot_hold_are_refused_with_the_reason(key, never, reason):
    with pytest.raises(AdvisorError, match=reason):
        place(gpu(key), instances(never))


@pytest.mark.parametrize(
    ("names", "too_old", "needed"), [("4g.20gb,3g.20gb", 470, 510), ("1g.10gb", 470, 525)]
)
def test_a_driver_refuses_what_came_after_it(names, too_old, needed):
    with pytest.raises(NothingFits, match=f"R{needed}"):
        place(gpu("a100-40gb"), instances(names), driver_branch=too_old)
    assert place(gpu("a100-40gb"), instances(names), driver_branch=needed)


@given(st.data())
def test_layouts_with_instances_in_use_are_those_that_contain_them(data):
    known = gpu(data.draw(st.sampled_from(["a30-24gb", "a100-40gb", "rtx-pro-6000-96gb"])))
    rows = rows_of(known)
    every = valid_sets(rows)
    held = sorted(data.draw(st.sampled_from(every)))
    used = data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=3, unique=True))
    pinned = data.draw(st.lists(st.booleans(), min_size=len(used), max_size=len(used)))
    in_use = [
        Instance(name, start if fixed else None)
        for (name, start), fixed in zip(used, pinned, strict=True)
    ]
    there = {place for place, fixed in zip(used, pinned, strict=True) if fixed}
    names = sorted(name for name, _ in used)

    def holds(one):
        mine = [name for name, _ in one]
        return there <= one and all(mine.count(name) >= names.count(name) for name in names)

    wanted = {one for one in every if holds(one)}
    found = placement_sets(known, known.mig, tuple(in_use))
    assert found.valid == len(wanted)
    assert set(map(places, found.maximal)) == maximal(wanted)


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


@pytest.mark.parametrize("key", DISTINCT)
def test_the_largest_layouts_cover_all_others_and_not_each_other(key):
    card = gpu(key)

    def sizes(layout):
        profiles = [profile_of(card, each.profile) for each in layout]
        return [
            sorted((getattr(each, name) for each in profiles), reverse=True)
            for name in ("memory_slices", "compute_slices")
        ]

    def covers(large, small):
        return all(
            len(mine) >= len(others) and all(map(int.__ge__, mine, others))
            for mine, others in zip(sizes(large), sizes(small), strict=True)
        )

    for most in (1, 2, 4, 7):
        largest = largest_layouts(card, most)
        for layout in layouts(card):
            if len(layout) <= most:
                assert any(covers(each, layout) for each in largest)
        for one, other in product(largest, largest):
            assert one is other or not covers(one, other)
        counts = list(map(len, largest))
        assert counts == sorted(counts)
        assert counts[-1] <= most


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
        each
        for each in held
        if not any(tuple(sorted((*each, one), reverse=True)) in held for one in starts)
    }
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


@given(st.data())
def test_any_part_of_a_layout_can_be_placed_where_it_is(data):
    known = gpu(data.draw(st.sampled_from(MIG_GPUS)))
    driver = data.draw(st.sampled_from([None, 580, 525, 509]))
    if full := placement_sets(known, known.mig, (), driver).maximal:
        layout = data.draw(st.sampled_from(full))
        part = tuple(data.draw(st.lists(st.sampled_from(layout), min_size=1, unique=True)))
        assert place(known, part, driver) == part
