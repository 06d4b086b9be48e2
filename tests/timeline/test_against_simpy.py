"""The event loop beside the obvious program: a SimPy process for each job."""

from itertools import count

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from advisor.timeline.event_loop import Task, run
from advisor.timeline.queue_policies import GpuCapacity, InOrder


class Twin:
    """Jobs as processes that think again whenever their mates change."""

    def __init__(self, tasks, pace_of, places, gpus, ranks):
        self.env = simpy.Environment()
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
        self.changed[gpu].succeed()
        self.changed[gpu] = self.env.event()

    def work(self, job, gpu):
        left = self.tasks[job].work_steps
        while left > 1e-9 * self.tasks[job].work_steps:
            began, pace = self.env.now, self.pace_of(job, tuple(sorted(self.running[gpu])))
            yield self.env.timeout(left / pace) | self.changed[gpu]
            left -= pace * (self.env.now - began)
        self.ends[job] = self.env.now
        self.running[gpu].remove(job)
        self.tell(gpu)
        yield from self.start()


# Quarters, and paces that are powers of 2: all is exact, so that jobs often come and end at the
# same moment, in both programs.
works = st.integers(1, 40).map(lambda quarters: quarters / 4)
moments = st.integers(0, 60).map(lambda quarters: quarters / 4)
tasks = st.lists(st.builds(Task, works, moments), min_size=1, max_size=9)


def slowed(table):
    """A job's pace beside mates: whatever `table` says of it and of how they are called."""

    def pace_of(job, running):
        return table[(job * 7 + sum(running) * 3 + len(running)) % len(table)] / 2 ** (
            len(running) - 1
        )

    return pace_of


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
    queue = InOrder(GpuCapacity((0,) * places), ranks)
    history = run(
        each,
        lambda seats: [pace_of(seat.job, tuple(s.job for s in seats)) for seat in seats],
        queue,
        gpus,
    )
    twin = Twin(each, pace_of, places, gpus, ranks).play()
    assert history.ends_s == pytest.approx(twin, rel=1e-9)
