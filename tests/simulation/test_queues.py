from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.simulation.events import JobStart, PlacedJob, Task, run
from advisor.simulation.queues import GpuCapacity, queue_of

PLACES = (0, 0)


def filled(policy, room, alone_s, kinds=None):
    queue = queue_of(policy, room, alone_s, kinds or tuple(range(len(alone_s))))
    for job in range(len(alone_s)):
        queue.add(job)
    return queue


def test_nobody_overtakes_a_job_that_waits_for_memory():
    small_only = GpuCapacity(
        PLACES, fits=lambda seats: len(seats) == 1 or PlacedJob(0, 1) not in seats
    )
    queue = filled("first-come", small_only, [9, 1])
    assert queue.take([(PlacedJob(7, 0),)]) is None
    assert queue.take([()]) == JobStart(0, 0, 0)


def test_best_fit_lets_a_job_wait_rather_than_slow_the_others_for_nothing():
    room = GpuCapacity(PLACES, worth=lambda _seats: 1.0)
    queue = filled("best-fit", room, [1])
    assert queue.take([(PlacedJob(7, 0),)]) is None
    assert queue.take([()]) == JobStart(0, 0, 0)


class LooksAtAll:
    """The slow, obvious twin of best fit: every waiting job, every GPU, every place, each time."""

    def __init__(self, room, kinds):
        self.room, self.kinds, self.waiting, self.came = room, kinds, [], count()

    def add(self, job):
        self.waiting.append((next(self.came), job))

    def take(self, gpus):
        offers = [
            (
                worth,
                -len(seats),
                -at,
                -self.kinds[job],
                -self.room.places[place],
                -place,
                -came,
                job,
            )
            for came, job in self.waiting
            for at, seats in enumerate(gpus)
            for place in range(len(self.room.places))
            if place not in {seat.place for seat in seats}
            for together in [tuple(sorted((*seats, PlacedJob(job, place))))]
            if self.room.fits(together)
            for worth in [self.room.worth(together) - (self.room.worth(seats) if seats else 0)]
            if worth > 1e-6
        ]
        if not offers:
            return None
        _, _, at, _, _, place, came, job = max(offers)
        self.waiting.remove((-came, job))
        return JobStart(job, -at, -place)


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 2)), min_size=1, max_size=12
    ),
    st.lists(st.sampled_from([0.3, 0.5, 0.9, 1.0]), min_size=4, max_size=7),
    st.integers(1, 3),
)
def test_best_fit_finds_what_looking_at_all_finds(jobs, table, gpus):
    work, arrivals, kinds = zip(*jobs, strict=True)

    def mix(seats):
        return sorted(3 * kinds[seat.job] + seat.place % 2 for seat in seats)

    def worth(seats):
        return 1.0 if len(seats) == 1 else sum(table[each % len(table)] for each in mix(seats))

    def fits(seats):
        return len(seats) == 1 or sum(mix(seats)) % 5 != 0

    def pace(seats):
        return [table[(sum(mix(seats)) + kinds[seat.job]) % len(table)] for seat in seats]

    room, tasks = (
        GpuCapacity((0, 1, 0), fits, worth, lambda seats: tuple(mix(seats))),
        list(map(Task, work, arrivals)),
    )
    quick = run(tasks, pace, queue_of("best-fit", room, work, kinds), gpus)
    slow = run(tasks, pace, LooksAtAll(room, kinds), gpus)
    assert quick == slow


@pytest.mark.parametrize("policy", ["first-come", "shortest-first", "best-fit"])
@given(jobs=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 20)), min_size=1, max_size=9))
def test_every_job_starts_and_ends_once_under_every_policy(policy, jobs):
    work, arrivals = zip(*jobs, strict=True)
    room = GpuCapacity(PLACES, worth=lambda seats: len(seats) ** 0.5)
    queue = queue_of(policy, room, work, (0,) * len(work))
    history = run(list(map(Task, work, arrivals)), lambda seats: [1.0] * len(seats), queue, 2)
    for came, start, end, todo in zip(
        arrivals, history.starts_s, history.ends_s, work, strict=True
    ):
        assert came <= start
        assert end == pytest.approx(start + todo)
