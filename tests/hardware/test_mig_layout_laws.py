"""Laws of MIG geometry, on any GPU and with any driver."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.hardware.catalogue import catalogue, gpu
from advisor.hardware.mig_layouts import place, placement_sets
from advisor.sharing import Instance
from tests.hardware.mig_twin import maximal, multisets, places, rows_of, sized, valid_sets

MIG_GPUS = sorted(key for key, known in catalogue().items() if known.mig)


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
    known = gpu(data.draw(st.sampled_from(["a30-24gb", "a100-40gb", "rtx-pro-6000-96gb"])))
    names = st.sampled_from([row.name for row in known.mig])
    wanted = sorted(data.draw(st.lists(names, min_size=1, max_size=8)))
    possible = tuple(wanted) in multisets(valid_sets(rows_of(known)))
    try:
        place(known, tuple(map(Instance, wanted)))
    except NothingFits:
        assert not possible
    else:
        assert possible


def drawn_layout(data):
    """Some GPU, a driver, and one of its full layouts."""
    known = gpu(data.draw(st.sampled_from(MIG_GPUS)))
    driver = data.draw(st.sampled_from([None, 580, 525, 509]))
    full = placement_sets(known, known.mig, (), driver).maximal
    return (known, driver, data.draw(st.sampled_from(full))) if full else None


@given(st.data())
def test_no_layout_overlaps_or_exceeds_a_maximum_or_the_memory(data):
    if drawn := drawn_layout(data):
        known, _, layout = drawn
        row = {each.name: each for each in known.mig}
        taken = [
            number
            for each in layout
            for number in range(each.start, each.start + row[each.profile].memory_slices)
        ]
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(range(known.memory_slices))
        assert sum(row[each.profile].memory_mib for each in layout) <= known.memory_mib
        assert all(sized(layout).count(name) <= row[name].max_instances for name in sized(layout))


@given(st.data())
def test_any_part_of_a_layout_can_be_placed_where_it_is(data):
    if drawn := drawn_layout(data):
        known, driver, layout = drawn
        part = tuple(data.draw(st.lists(st.sampled_from(layout), min_size=1, unique=True)))
        assert place(known, part, driver) == part


@given(st.data())
def test_nothing_can_be_added_to_a_full_layout(data):
    if drawn := drawn_layout(data):
        known, driver, layout = drawn
        row = data.draw(st.sampled_from(known.mig))
        more = Instance(row.name, data.draw(st.sampled_from(row.starts)))
        with pytest.raises(NothingFits):
            place(known, (*layout, more), driver)


@given(st.data())
def test_layouts_beside_instances_in_use_are_those_that_contain_them(data):
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
    found = placement_sets(known, known.mig, in_use)
    assert found.valid == len(wanted)
    assert set(map(places, found.maximal)) == maximal(wanted)
