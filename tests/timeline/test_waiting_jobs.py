"""The array form of the event loop says what the event loop says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.sharing import Naive
from advisor.timeline.waiting_jobs import array_ends_s, array_stretches, from_the_start

JOBS = 4
ALONE_S = np.array([0.1, 0.2, 0.05, 1.0])
work = st.lists(
    st.lists(st.just(0.0) | st.floats(1, 1e6), min_size=JOBS, max_size=JOBS), min_size=1, max_size=5
)
harms = st.lists(st.floats(0, 3), min_size=JOBS, max_size=JOBS)


def crowded(running, harm):
    """Seconds of a step of each job that runs: each mate slows by a share of its own."""
    harm = np.where(running, harm, 0.0)
    return np.where(running, ALONE_S * (1 + harm.sum(axis=-1, keepdims=True) - harm), np.nan)


def by_the_loop(steps, harm):
    """Ends of the jobs that have work, one set of them."""
    there = np.flatnonzero(steps)

    def pace(seats):
        running = np.isin(np.arange(JOBS), there[[seat.job for seat in seats]])
        return [1 / crowded(running, harm)[there[seat.job]] for seat in seats]

    ends_s = np.zeros(JOBS)
    if len(there):
        ends_s[there] = from_the_start(Naive(), list(np.array(steps)[there]), pace).ends_s
    return ends_s


@given(work, harms)
def test_many_sets_at_once_end_when_each_by_itself_does(sets, harm):
    found = array_ends_s(np.array(sets), lambda _at, running: crowded(running, harm))
    expected = [by_the_loop(steps, harm) for steps in sets]
    assert found == pytest.approx(np.array(expected), rel=1e-6)


@given(work, harms)
def test_stretches_of_a_set_add_up_to_its_last_end(sets, harm):
    last_s, ends_s = np.zeros(len(sets)), np.zeros((len(sets), JOBS))
    for each in array_stretches(np.array(sets), lambda _at, running: crowded(running, harm)):
        last_s[each.sets] += each.seconds
        ends_s[each.sets] += each.running * each.seconds[:, None]
    assert last_s == pytest.approx(ends_s.max(axis=1))


def test_a_set_without_jobs_takes_no_time():
    assert array_ends_s(np.zeros((2, 3)), lambda _at, running: np.ones(running.shape)).sum() == 0
