"""MIG geometry, against published counts and against an obvious, slow twin."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput, NothingFits, UnknownName
from advisor.hardware.catalogue import Gpu, catalogue, gpu
from advisor.hardware.mig_layouts import layouts, place, placement_sets
from advisor.sharing import Instance
from tests.hardware.mig_twin import (
    instances,
    is_valid,
    maximal,
    multisets,
    places,
    rows_of,
    sized,
    valid_sets,
)

MIG_GPUS = sorted(key for key, known in catalogue().items() if known.mig)

# Profiles of the NVIDIA MIG User Guide's placement figure; later drivers offer 1g.10gb as well.
FIGURE = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")

FACTS = Path(__file__).parents[3] / "shared" / "facts"
outside = pytest.mark.skipif(not FACTS.exists(), reason="the published tables lie elsewhere")

# The published table's names of GPUs, and the catalogue's.
PUBLISHED = {
    "A100-40GB": "a100-40gb", "A100-80GB": "a100-80gb", "A30-24GB": "a30-24gb",
    "H100-SXM5-80GB": "h100-sxm-80gb", "H100-PCIe-80GB": "h100-pcie-80gb",
    "H100-NVL-94GB": "h100-nvl-94gb", "H100-96GB / GH200-96GB": "gh200-96gb",
    "GH200-144GB": "gh200-144gb", "H200-141GB": "h200-141gb", "H20-96GB": "h20-96gb",
    "B200-180GB": "b200-180gb", "GB200-186GB": "gb200-186gb", "B300": "b300-269gb",
    "GB300": "gb300-278gb", "RTX-PRO-6000-Blackwell-96GB": "rtx-pro-6000-96gb",
}  # fmt: skip


def only(key: str, names: tuple[str, ...]) -> Gpu:
    known = gpu(key)
    return replace(known, mig=tuple(row for row in known.mig if row.name in names))


def sets_of(known: Gpu, driver=None):
    """What the advisor finds: how many valid sets, and the maximal ones as sets of places."""
    found = placement_sets(known, known.mig, (), driver)
    assert len(set(map(places, found.maximal))) == len(found.maximal)
    return found.valid, set(map(places, found.maximal))


@pytest.mark.parametrize(
    ("driver", "valid", "full", "distinct"), [(580, 297, 19, 14), (510, 297, 19, 14),
                                              (509, 296, 18, 13), (470, 296, 18, 13)]
)  # fmt: skip
def test_an_a100_has_the_layouts_of_nvidia_s_listing(driver, valid, full, distinct):
    count, found = sets_of(only("a100-40gb", FIGURE), driver)
    assert (count, len(found), len(multisets(found))) == (valid, full, distinct)


@pytest.mark.parametrize(
    ("key", "names", "valid", "full", "distinct"),
    [
        ("a100-40gb", (*FIGURE, "1g.10gb"), 722, 78, 38),
        ("a100-40gb", (*FIGURE, "1g.10gb", "1g.5gb+me"), 2318, 239, 64),
        ("a30-24gb", ("1g.6gb", "2g.12gb", "4g.24gb"), 25, 5, 4),
        ("a30-24gb", tuple(row.name for row in gpu("a30-24gb").mig), 75, 17, 8),
        ("rtx-pro-6000-96gb", ("1g.24gb", "2g.48gb", "4g.96gb"), 25, 5, 4),
    ],
)
def test_counts_are_those_known_of_each_kind_of_gpu(key, names, valid, full, distinct):
    count, found = sets_of(only(key, names))
    assert (count, len(found), len(multisets(found))) == (valid, full, distinct)


@pytest.mark.parametrize("driver", [None, 470])
@pytest.mark.parametrize("key", MIG_GPUS)
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
                each["profile_id"], each["compute_slices"], each["memory_slices"], each["sm_count"]
            )  # fmt: skip
            assert each["memory_mib"] in (None, row.memory_mib)
            assert row.min_driver == (each["min_driver"] and int(each["min_driver"][1:]))


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


def test_an_old_driver_refuses_a_4g_beside_a_3g():
    pair = instances("4g.20gb,3g.20gb")
    with pytest.raises(NothingFits, match="R510"):
        place(gpu("a100-40gb"), pair, driver_branch=470)
    assert [each.start for each in place(gpu("a100-40gb"), pair)] == [0, 4]


def test_a_driver_refuses_profiles_that_came_after_it():
    with pytest.raises(NothingFits, match=r"1g\.10gb needs a driver of R525 or later, not R470"):
        place(gpu("a100-40gb"), instances("1g.10gb"), driver_branch=470)
    assert place(gpu("a100-40gb"), instances("1g.10gb"), driver_branch=525)


@pytest.mark.parametrize(
    "never",
    [
        "4g.20gb,4g.20gb",
        "3g.20gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb",
        "3g.20gb,3g.20gb,1g.5gb",
        "1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb",
        "7g.40gb,1g.5gb",
        "1g.5gb+me,1g.5gb+me",
    ],
)
def test_what_never_fits_an_a100_is_refused_with_a_reason(never):
    with pytest.raises(NothingFits, match=r"at most|share one of its 8 memory slices"):
        place(gpu("a100-40gb"), instances(never))


def test_only_one_instance_has_the_media_engines_whatever_its_size():
    with pytest.raises(NothingFits, match=r"at most one instance with \+me"):
        place(gpu("a30-24gb"), instances("1g.6gb+me,2g.12gb+me"))


def test_a_profile_of_another_gpu_is_refused_and_the_right_ones_are_listed():
    with pytest.raises(UnknownName, match=r"of h200-141gb is called '3g\.20gb'.*It has.*3g\.71gb"):
        place(gpu("h200-141gb"), instances("3g.20gb"))


def test_a_profile_that_no_gpu_has_is_a_slip_of_the_pen_and_the_near_ones_are_named():
    with pytest.raises(UnknownName, match=r"called '3g\.73gb'\. Near: 3g\.71gb.*7g\.141gb"):
        place(gpu("h200-141gb"), instances("3g.73gb"))


def test_a_start_that_the_profile_does_not_have_is_refused():
    with pytest.raises(InvalidInput, match=r"3g\.71gb starts at 0, 4, not 2"):
        place(gpu("h200-141gb"), instances("3g.71gb@2"))


def test_a_gpu_without_mig_says_so():
    with pytest.raises(NothingFits, match="has no MIG"):
        place(gpu("l4-24gb"), instances("1g.5gb"))
    assert layouts(gpu("l4-24gb")) == ()


def test_a_start_that_is_given_is_kept_and_the_others_give_way():
    placed = place(gpu("h200-141gb"), instances("1g.18gb,2g.35gb@0,3g.71gb"))
    assert placed == instances("1g.18gb@2,2g.35gb@0,3g.71gb@4")


def test_a_late_choice_is_taken_back_where_it_would_block_the_rest():
    # The 3g could take slices 0 to 3, but then the 4g has none.
    placed = place(gpu("h200-141gb"), instances("3g.71gb,4g.71gb"))
    assert placed == instances("3g.71gb@4,4g.71gb@0")


@pytest.mark.parametrize("key", MIG_GPUS)
def test_every_full_layout_of_every_gpu_can_be_placed_again_without_its_starts(key):
    for layout in layouts(gpu(key)):
        bare = tuple(Instance(each.profile) for each in layout)
        assert sized(place(gpu(key), bare)) == sized(layout)
        assert place(gpu(key), layout) == layout


def test_what_is_in_use_need_not_be_among_what_may_be_added():
    known = gpu("a100-40gb")
    small = [row for row in known.mig if row.name == "2g.10gb"]
    pinned = placement_sets(known, small, instances("3g.20gb@4"))
    assert pinned.valid == 4  # beside it a 2g at 0, at 2, at both, and none
    assert pinned.maximal == (instances("2g.10gb@0,2g.10gb@2,3g.20gb@4"),)
    loose = placement_sets(known, small, instances("3g.20gb"))
    assert loose.valid == 6  # with the 3g at 0 there is one more place, at 4
    assert instances("3g.20gb@0,2g.10gb@4") in loose.maximal


def test_instances_that_cannot_be_in_use_at_once_are_refused():
    known = gpu("a100-40gb")
    with pytest.raises(NothingFits, match="share one of its 8 memory slices"):
        placement_sets(known, known.mig, instances("3g.20gb@0,1g.5gb@3"))


def test_the_twin_knows_the_layouts_that_never_work():
    rows = rows_of(gpu("a100-40gb"))
    number = {row[0]: at for at, row in enumerate(rows)}
    threes = [(number["3g.20gb"], 0), (number["3g.20gb"], 4)]
    assert is_valid(threes, rows)
    assert not any(is_valid([*threes, (number["1g.5gb"], at)], rows) for at in range(8))
