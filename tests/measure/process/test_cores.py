import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.measure.process.cores import allowed_cores, cores_of_each, spare_cores

needs = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@given(needs, st.integers(0, 8))
def test_every_tenant_has_the_cores_it_needs_and_no_core_has_two_tenants(wanted, more):
    cores = cores_of_each(wanted, range(sum(wanted) + more))
    assert [len(each) for each in cores] == wanted
    assert len({core for each in cores for core in each}) == sum(wanted)


@given(needs, st.integers(1, 40))
def test_what_is_spare_is_nobodys_unless_nothing_is(wanted, count):
    cores = cores_of_each(wanted, range(count), share=True)
    taken = {core for each in cores for core in each}
    spare = set(spare_cores(cores, range(count)))
    assert spare == set(range(count)) - taken or spare == set(range(count)) == taken


def test_too_few_cores_are_refused_with_how_many_are_needed():
    said = r"4 cores would be needed for 2 tenants.* allowed are 3 \(0-1,4\)"
    with pytest.raises(InvalidInput, match=said):
        cores_of_each([1, 3], [0, 1, 4])


def test_to_try_out_tenants_may_share_cores():
    assert cores_of_each([1, 1, 1], [4, 5], share=True) == ((4,), (5,), (4,))


def test_all_cores_are_allowed_where_none_are_named():
    assert set(allowed_cores()) == os.sched_getaffinity(0)


def test_cores_can_be_named_one_by_one_and_as_ranges(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    assert allowed_cores("0-3,8,10-11") == (0, 1, 2, 3, 8, 10, 11)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3,,4", "99999", "9999", "3-1"])
def test_cores_that_are_none_or_not_ours_are_refused(text):
    with pytest.raises(InvalidInput, match="--cores"):
        allowed_cores(text)
