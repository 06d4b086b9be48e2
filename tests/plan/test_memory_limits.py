"""Memory caps: set where they are needed and can be, and never above what there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.memory_edge import memory_caps
from tests.handed import H200, JOBS, predicted


def caps(sharing, jobs=JOBS[:2], **memory):
    return memory_caps(H200, predicted(sharing, jobs, **memory))


def test_there_is_no_cap_where_everything_fits():
    assert caps("mps") == {}


def test_there_is_a_cap_where_only_the_least_memory_fits():
    assert caps("mps", held_mib=90_000, least_mib=60_000).keys() == {1, 2}


def test_there_is_no_cap_where_even_the_least_does_not_fit():
    assert caps("mps", held_mib=90_000, least_mib=80_000) == {}


@pytest.mark.parametrize("sharing", ["serial", "naive", "mig=3g.71gb,4g.71gb"])
def test_processes_without_mps_have_no_cap(sharing):
    assert caps(sharing, held_mib=90_000, least_mib=60_000) == {}


def test_an_instance_is_what_its_own_clients_share():
    found = caps("mig=4g.71gb[1]+3g.71gb[2,3]/mps", JOBS, held_mib=40_000, least_mib=30_000)
    assert found.keys() == {2, 3}


@given(st.floats(1, 200_000), st.floats(1, 200_000))
def test_caps_are_between_least_and_held_and_fit_together(one, other):
    least, held = sorted((one, other))
    found = caps("mps", held_mib=held, least_mib=least)
    assert all(int(least) <= cap <= held for cap in found.values())
    assert sum(found.values()) <= H200.usable_mib
