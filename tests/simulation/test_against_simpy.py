"""The event loop beside the obvious program: a SimPy process for each job."""

from itertools import count

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.simulation.loop import Task, run
from advisor.simulation.queues import InOrder, Room


class Twin:
    """Jobs as processes that are interrupted whenever their mates change."""

    def __init__(self, tasks, pace_of, places, gpus, ranks):
        self.env = simpy.Environment()
        self.tasks, self.pace_of, self.places, self.ranks = tasks, pace_of, places, ranks
        self.running = [{} for _ in range(gpus)]  # of each GPU: job -> its process
        self.waiting, self.came, self.ends = [], count(), {}

    def play(self):
        for job in sorted(range(len(self.tasks)), key=lambda job: self.tasks[job].arrival_s):
            self.env.process(self.arrive(job, self.env.timeout(self.tasks[job].arrival_s)))
        self.env.run()
        return [self.ends[job] for job in range(len(self.tasks))]

    def arrive(self, job, moment):
        yield moment
        self.waiting.append((self.ranks[job], next(self.came), job))
        # Whoever comes or ends at the same moment does so before anybody starts.
        yield self.env.timeout(0)
        self.start()

    def start(self):
        while self.waiting:
            emptiest = min(range(len(self.running)), key=lambda gpu: len(self.running[gpu]))
            if len(self.running[emptiest]) == self.places:
                return
            self.waiting.sort()
            _, _, job = self.waiting.pop(0)
            mates = self.running[emptiest]
            for process in mates.values():
                process.interrupt()
            mates[job] = self.env.process(self.work(job, mates))

    def work(self, job, mates):
        left = self.tasks[job].work_steps
        while left > 0:
            # All that starts at this moment has started once the clock is asked again.
            try:
                yield self.env.timeout(0)
            except simpy.Interrupt:
                continue
            began, pace = self.env.now, self.pace_of(job, tuple(sorted(mates)))
            try:
                yield self.env.timeout(left / pace)
                left = 0
            except simpy.Interrupt:
                left -= pace * (self.env.now - began)
        del mates[job]
        self.ends[job] = self.env.now
        for process in mates.values():
            process.interrupt()
        yield self.env.timeout(0)
        self.start()


# Whole numbers of quarters, so that jobs often come and end at exactly the same moment.
works = st.integers(1, 40).map(lambda quarters: quarters / 4)
moments = st.integers(0, 60).map(lambda quarters: quarters / 4)
tasks = st.lists(st.builds(Task, works, moments), min_size=1, max_size=9)


def slowed(table):
    """A job's pace beside mates: whatever `table` says of it and of how they are called."""

    def pace_of(job, running):
        return table[(job * 7 + sum(running) * 3 + len(running)) % len(table)] / len(running)

    return pace_of


@settings(max_examples=300, deadline=None)
@given(
    tasks,
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_loop_does_what_simpy_does(each, table, places, gpus, shortest_first):
    pace_of = slowed(table)
    ranks = [task.work_steps if shortest_first else 0.0 for task in each]
    queue = InOrder(Room((0,) * places), ranks)
    history = run(
        each,
        lambda seats: [pace_of(seat.job, tuple(s.job for s in seats)) for seat in seats],
        queue,
        gpus,
    )
    twin = Twin(each, pace_of, places, gpus, ranks).play()
    assert history.ends_s == pytest.approx(twin, rel=1e-9)
