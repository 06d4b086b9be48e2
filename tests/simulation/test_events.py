"""The event loop: its laws, the same jobs as SimPy processes, and its array form."""

from bisect import bisect
from itertools import accumulate, count, pairwise
from math import inf

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.sharing import Group, Naive, Phases, Queue, Serial
from advisor.simulation.events import PlacedJob, Stretch, Task, run
from advisor.simulation.queues import GpuCapacity, InOrder, queue_of
from advisor.simulation.turns import array_ends_s, from_the_start

steps = st.floats(1, 1e6)
speeds = st.floats(0.01, 1e3)
moments = st.floats(0, 1e5)


def fair(alone):
    """Each of n jobs at one n-th of the speed it has alone."""
    return lambda seats: [alone[seat.job] / len(seats) for seat in seats]


def unhindered(alone):
    return lambda seats: [alone[seat.job] for seat in seats]


def together(work, pace):
    return from_the_start(Naive(), [*map(Task, work)], pace)


def first_come(places):
    return InOrder(GpuCapacity(tuple(range(places))))


def test_the_rest_speed_up_when_a_job_ends():
    history = together([10, 5], fair([1, 1]))
    assert tuple(history.stretches) == (
        Stretch(0, 0, 10, (PlacedJob(0, 0), PlacedJob(1, 1)), (0.5, 0.5)),
        Stretch(0, 10, 15, (PlacedJob(0, 0),), (1.0,)),
    )
    assert history.ends_s == (15, 10)


def test_a_job_that_no_gpu_holds_is_refused():
    nowhere = InOrder(GpuCapacity((0,), fits=lambda seats: seats[0].job != 1))
    with pytest.raises(NothingFits, match="wait forever"):
        run([Task(1), Task(1)], fair([1, 1]), nowhere)


@given(
    st.lists(
        st.tuples(st.floats(5e-324, 1e300), speeds, st.floats(0, 1.7e18)), min_size=1, max_size=6
    ),
    st.integers(1, 3),
)
def test_every_job_runs_and_ends_however_short_it_is_and_however_late_it_comes(each, places):
    work, alone, arrivals = zip(*each, strict=True)
    history = run(list(map(Task, work, arrivals)), fair(alone), first_come(places))
    assert {seat.job for stretch in history.stretches for seat in stretch.seats} == set(
        range(len(work))
    )
    assert len(history.stretches) <= 2 * len(work)


@given(
    st.lists(st.tuples(steps, speeds, moments, st.integers(1, 4)), min_size=1, max_size=10),
    st.sampled_from([(4,), (1, 4), (4, 5)]),
    st.sampled_from(["first-come", "best-fit"]),
    st.booleans(),
)
def test_each_step_is_done_once_on_a_free_place_and_a_job_on_several_gpus_has_them_for_itself(
    each, hosts, policy, limited
):
    work, alone, arrivals, widths = zip(*each, strict=True)
    ends = list(accumulate(hosts, initial=0))
    room = GpuCapacity(
        (0, 0),
        worth=lambda seats: len(seats) ** 0.5,
        widths=widths,
        fits=lambda seats: len(seats) == 1 or all(widths[seat.job] == 1 for seat in seats),
        hosts=[range(*pair) for pair in pairwise(ends)],
    )
    queue = queue_of(policy, room, work, widths)

    def on_shared_host(busy):
        return lambda seats: [alone[seat.job] / len(seats) / busy for seat in seats]

    shared = on_shared_host if limited else None
    history = run(list(map(Task, work, arrivals)), fair(alone), queue, hosts, shared)
    done = [0.0] * len(work)
    for stretch in history.stretches:
        assert len({seat.place for seat in stretch.seats}) == len(stretch.seats)
        for seat, speed in zip(stretch.seats, stretch.speeds, strict=True):
            done[seat.job] += speed * stretch.seconds
            assert widths[seat.job] == 1 or len(stretch.seats) == 1
    all_work = [steps * width for steps, width in zip(work, widths, strict=True)]
    assert done == pytest.approx(all_work, rel=1e-6, abs=1e-4)
    for job, width in enumerate(widths):
        assert history.ends_s[job] >= arrivals[job] + 0.999999 * work[job] / alone[job]
        own = [one for one in history.stretches if job in {seat.job for seat in one.seats}]
        gpus = {stretch.gpu for stretch in own}
        assert len(gpus) == width
        assert len({bisect(ends, gpu) for gpu in gpus}) == 1, "one host"
    for gpu in range(sum(hosts)):
        spans = [(one.start_s, one.end_s) for one in history.stretches if one.gpu == gpu]
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


class Twin:
    """Jobs as processes that compute their pace again whenever others start or end."""

    def __init__(self, tasks, pace_of, places, gpus, ranks, host_slows=None):
        self.env, self.host_slows = simpy.Environment(), host_slows
        self.tasks, self.pace_of, self.places, self.ranks = tasks, pace_of, places, ranks
        self.running = [set() for _ in range(gpus)]
        self.changed = [self.env.event() for _ in range(gpus)]
        self.waiting, self.came, self.ends = [], count(), {}

    def play(self):
        for job in sorted(range(len(self.tasks)), key=lambda job: self.tasks[job].arrival_s):
            self.env.process(self.arrive(job, self.env.timeout(self.tasks[job].arrival_s)))
        self.env.run()
        return [self.ends[job] for job in range(len(self.tasks))]

    def arrive(self, job, moment):
        yield moment
        self.waiting.append((self.ranks[job], next(self.came), job))
        yield from self.start()

    def start(self):
        for _ in range(5):  # whoever comes or ends at this very moment does so first
            yield self.env.timeout(0)
        while self.waiting:
            gpu = min(range(len(self.running)), key=lambda gpu: len(self.running[gpu]))
            if len(self.running[gpu]) == self.places:
                return
            self.waiting.sort()
            _, _, job = self.waiting.pop(0)
            self.running[gpu].add(job)
            self.tell(gpu)
            self.env.process(self.work(job, gpu))

    def tell(self, gpu):
        for at in range(len(self.running)) if self.host_slows else [gpu]:
            self.changed[at].succeed()
            self.changed[at] = self.env.event()

    def work(self, job, gpu):
        left = self.tasks[job].work_steps
        while left > 1e-9 * self.tasks[job].work_steps:
            began, pace = self.env.now, self.pace_of(job, tuple(sorted(self.running[gpu])))
            if self.host_slows:
                pace /= self.host_slows[sum(map(bool, self.running)) - 1]
            yield self.env.timeout(left / pace) | self.changed[gpu]
            left -= pace * (self.env.now - began)
        self.ends[job] = self.env.now
        self.running[gpu].remove(job)
        self.tell(gpu)
        yield from self.start()


# Quarters, and paces that are powers of 2: all is exact, so that jobs often come and end at the
# same moment, in both programs.
works = st.integers(1, 40).map(lambda quarters: quarters / 4)
quarters = st.integers(0, 60).map(lambda quarters: quarters / 4)
tables = st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=1, max_size=5)
quarter_tasks = st.lists(st.builds(Task, works, quarters), min_size=1, max_size=9)


def slowed(table):
    """A job's pace: what `table` has for it and for the jobs that run with it."""

    def pace_of(job, running):
        row = (job * 7 + sum(running) * 3 + len(running)) % len(table)
        return table[row] / 2 ** (len(running) - 1)

    return pace_of


@given(quarter_tasks, tables, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_the_loop_does_what_simpy_does(each, table, places, gpus, shortest_first):
    pace_of = slowed(table)
    ranks = [task.work_steps if shortest_first else 0.0 for task in each]
    queue = InOrder(GpuCapacity((0,) * places), ranks)
    history = run(
        each,
        lambda seats: [pace_of(seat.job, tuple(s.job for s in seats)) for seat in seats],
        queue,
        [gpus],
    )
    twin = Twin(each, pace_of, places, gpus, ranks).play()
    assert history.ends_s == pytest.approx(twin, rel=1e-9)


@given(
    quarter_tasks,
    tables,
    st.integers(1, 3),
    st.lists(st.sampled_from([1.0, 1.0, 2.0, 4.0]), min_size=4, max_size=4).map(sorted),
)
def test_gpus_that_share_the_cores_of_a_host_slow_each_other_as_in_simpy(
    each, table, places, host_slows
):
    pace_of = slowed(table)

    def on_shared_host(busy):
        def pace(seats):
            running = tuple(seat.job for seat in seats)
            return [pace_of(seat.job, running) / host_slows[busy - 1] for seat in seats]

        return pace

    ranks = [0.0] * len(each)
    history = run(each, on_shared_host(1), first_come(places), [4], on_shared_host)
    twin = Twin(each, pace_of, places, 4, ranks, host_slows).play()
    assert history.ends_s == pytest.approx(twin, rel=1e-9)


@given(st.lists(works, min_size=3, max_size=9), tables, st.data())
def test_a_queue_starts_its_jobs_in_order_when_others_end(work, table, data):
    order = data.draw(st.permutations(range(len(work))))
    at_once = data.draw(st.integers(2, len(work) - 1))
    queue = Phases((Group(tuple(job + 1 for job in order), Queue(Naive(), at_once)),))
    pace_of = slowed(table)
    history = from_the_start(
        queue,
        [*map(Task, work)],
        lambda seats: [pace_of(seat.job, tuple(s.job for s in seats)) for seat in seats],
    )
    ranks = [order.index(job) for job in range(len(work))]
    twin = Twin(list(map(Task, work)), pace_of, at_once, 1, ranks).play()
    assert history.ends_s == pytest.approx(twin, rel=1e-9)
    assert max(len(stretch.seats) for stretch in history.stretches) == at_once
    starts_s = [history.starts_s[job] for job in order]
    assert starts_s == sorted(starts_s)


@given(st.lists(works, min_size=2, max_size=6), st.data())
def test_one_job_after_another_runs_in_the_order_of_its_group(work, data):
    order = data.draw(st.permutations(range(len(work))))
    group = Group(tuple(job + 1 for job in order), Serial())
    naive = Group((len(work) + 1,), Naive())
    ends_s = from_the_start(
        Phases((group, naive)), [*map(Task, [*work, 1.0])], lambda seats: [1.0] * len(seats)
    ).ends_s
    assert [ends_s[job] for job in order] == pytest.approx(np.cumsum([work[j] for j in order]))


JOBS = 4
ALONE_S = np.array([0.1, 0.2, 0.05, 1.0])
sets_of_work = st.lists(
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
        ends_s[there] = together(np.array(steps)[there].tolist(), pace).ends_s
    return ends_s


@given(sets_of_work, harms)
def test_many_sets_at_once_end_when_each_by_itself_does(sets, harm):
    found = array_ends_s(np.array(sets), lambda _at, running: crowded(running, harm))
    expected = [by_the_loop(steps, harm) for steps in sets]
    assert found == pytest.approx(np.array(expected), rel=1e-6)


@given(
    st.lists(
        st.tuples(st.floats(0.1, 100), st.floats(0, 20), st.floats(0.01, 5)), min_size=2, max_size=7
    ),
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    st.integers(2, 7),
)
def test_starts_take_all_their_cpu_time_and_more_cores_never_end_jobs_later(each, cores, at_once):
    works = [(work + start, 0.0, start, min(start, cpu)) for work, start, cpu in each]
    group = Group(tuple(range(1, len(each) + 1)), Queue(Naive(), min(at_once, len(each))))

    def ends(on):
        tasks = [Task(*work[:3], work[3] / on) for work in works]
        return from_the_start(Phases((group,)), tasks, unhindered([1] * len(each)))

    few, more = ends(cores), ends(2 * cores)
    assert few.makespan_s >= sum(cpu for *_, cpu in works) / cores - 1e-6
    if at_once >= len(each):  # a queue of jobs of other lengths has anomalies
        assert all(end >= least - 1e-6 for end, least in zip(few.ends_s, more.ends_s, strict=True))
    plain = from_the_start(
        Phases((group,)), [Task(work[0]) for work in works], unhindered([1] * len(each))
    )
    assert ends(inf).ends_s == plain.ends_s


def test_a_job_that_starts_later_waits_only_for_starts_that_still_run():
    tasks = [Task(10, 0.0, 10, 8), Task(10, 5.0, 10, 8), Task(10, 100.0, 10, 8)]
    history = run(tasks, unhindered([1, 1, 1]), first_come(3))
    assert history.ends_s == (10, 16, 110)
