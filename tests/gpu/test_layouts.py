"""MIG geometry, against published counts and against an obvious, slow twin."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.gpu.catalogue import Gpu, catalogue, gpu
from advisor.gpu.layouts import layouts, place
from advisor.sharing import Instance, Mig, parse_sharing

ORACLE = Path(__file__).parents[3] / "shared" / "facts" / "mig_layouts.json"
MIG_GPUS = sorted(key for key, known in catalogue().items() if known.mig)

# Profiles of the NVIDIA MIG User Guide's placement figure; later drivers offer 1g.10gb as well.
FIGURE = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


def instances(text: str) -> tuple[Instance, ...]:
    sharing = parse_sharing(f"mig={text}")
    assert isinstance(sharing, Mig)
    return sharing.instances


def sized(layout):
    return sorted(each.profile for each in layout)


def multisets(known: Gpu, driver_branch: int = 580):
    return {tuple(sized(layout)) for layout in layouts(known, driver_branch)}


def slow_twin(known: Gpu, names: tuple[str, ...]) -> list[frozenset[Instance]]:
    """Every valid non-empty set of placed instances, by trying every set of places."""
    size = {profile.name: profile.memory_slices for profile in known.mig}
    most = {profile.name: profile.max_instances for profile in known.mig}
    every = [
        Instance(profile.name, start)
        for profile in known.mig
        if profile.name in names
        for start in profile.starts
    ]

    def valid(places):
        taken = [n for each in places for n in range(each.start, each.start + size[each.profile])]
        counts = [sum(each.profile == name for each in places) for name in names]
        return len(set(taken)) == len(taken) and all(
            count <= most[name] for count, name in zip(counts, names, strict=True)
        )

    # Grown place by place: whatever is invalid stays so, whatever is added.
    found = [()]
    for each in every:
        found += [(*places, each) for places in found if valid((*places, each))]
    return [frozenset(places) for places in found if places]


def maximal(sets):
    return {one for one in sets if not any(one < other for other in sets)}


def only(key: str, names: tuple[str, ...]) -> Gpu:
    known = gpu(key)
    return replace(known, mig=tuple(row for row in known.mig if row.name in names))


def test_an_a100_has_the_19_full_layouts_of_nvidia_s_listing():
    assert len(layouts(only("a100-40gb", FIGURE))) == 19
    assert len(multisets(only("a100-40gb", FIGURE))) == 14


def test_an_old_driver_refuses_a_4g_beside_a_3g():
    assert len(layouts(only("a100-40gb", FIGURE), driver_branch=470)) == 18
    assert len(multisets(only("a100-40gb", FIGURE), driver_branch=470)) == 13
    pair = instances("4g.20gb,3g.20gb")
    with pytest.raises(NothingFits, match="R510"):
        place(gpu("a100-40gb"), pair, driver_branch=470)
    assert [each.start for each in place(gpu("a100-40gb"), pair)] == [0, 4]


@pytest.mark.parametrize(
    ("key", "media", "full", "distinct"),
    [
        ("a100-40gb", False, 78, 38),
        ("a100-40gb", True, 239, None),
        ("h200-141gb", False, 78, 38),
        ("a30-24gb", False, 5, 4),
        ("a30-24gb", True, 17, None),
        ("rtx-pro-6000-96gb", False, 5, 4),
    ],
)
def test_the_number_of_full_layouts_is_the_one_counted_by_hand(key, media, full, distinct):
    assert len(layouts(gpu(key), media=media)) == full
    assert distinct in (None, len(multisets(gpu(key))))


@pytest.mark.skipif(not ORACLE.exists(), reason="the published layouts lie outside the project")
def test_every_published_layout_is_found_and_no_other():
    published = json.loads(ORACLE.read_text())["a100_40gb_driver_ge_510"]["maximal_layouts"]
    wanted = {
        frozenset(
            Instance(name, int(place.split(":")[0]))
            for name, _, place in (word.partition("@") for word in line.split())
        )
        for line in published
    }
    assert {frozenset(layout) for layout in layouts(only("a100-40gb", FIGURE))} == wanted


@pytest.mark.parametrize("key", ["a100-40gb", "h200-141gb", "a30-24gb", "rtx-pro-6000-96gb"])
def test_layouts_agree_with_trying_every_set_of_places(key):
    names = tuple(row.name for row in gpu(key).mig if row.name.endswith("gb"))
    sets = slow_twin(gpu(key), names)
    assert {frozenset(layout) for layout in layouts(gpu(key))} == maximal(sets)


def test_an_a100_has_297_valid_sets_of_places():
    assert len(set(slow_twin(gpu("a100-40gb"), FIGURE))) == 297


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


def test_a_profile_of_another_gpu_is_refused_and_the_right_ones_are_listed():
    with pytest.raises(NothingFits, match=r"h200-141gb has no MIG profile 3g\.20gb.*3g\.71gb"):
        place(gpu("h200-141gb"), instances("3g.20gb"))


def test_a_start_that_the_profile_does_not_have_is_refused():
    with pytest.raises(NothingFits, match=r"3g\.71gb starts at 0, 4, not 2"):
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


@given(st.data())
def test_what_is_placed_never_shares_a_memory_slice(data):
    known = gpu(data.draw(st.sampled_from(MIG_GPUS)))
    names = st.sampled_from([row.name for row in known.mig])
    wanted = tuple(map(Instance, data.draw(st.lists(names, min_size=1, max_size=8))))
    try:
        placed = place(known, wanted)
    except NothingFits:
        return
    size = {row.name: row.memory_slices for row in known.mig}
    taken = [n for each in placed for n in range(each.start, each.start + size[each.profile])]
    assert len(set(taken)) == len(taken)
    assert max(taken) < known.memory_slices
    assert [each.profile for each in placed] == [each.profile for each in wanted]


@given(st.data())
def test_a_set_is_refused_only_if_no_set_of_places_holds_it(data):
    known = gpu("a30-24gb")
    names = tuple(row.name for row in known.mig if "+" not in row.name)
    wanted = sorted(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5)))
    possible = any(sized(one) == wanted for one in slow_twin(known, names))
    try:
        place(known, tuple(map(Instance, wanted)))
    except NothingFits:
        assert not possible
    else:
        assert possible


def test_every_valid_set_is_part_of_a_full_layout():
    full = [frozenset(layout) for layout in layouts(only("a100-40gb", FIGURE))]
    assert all(any(one <= layout for layout in full) for one in slow_twin(gpu("a100-40gb"), FIGURE))
