"""GPUs that change their layout when they have no job: laws, and a plain loop for one GPU."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.errors import InvalidInput, NothingFits
from advisor.simulation.events import JobStart, Task, run
from advisor.simulation.queues import GpuCapacity, queue_of
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival

# Sizes of places, which are the speeds there: powers of 2, so that all is exact.
LAYOUTS = [(4,), (2, 2), (2, 1), (1, 1, 1)]
CHANGE_S = 0.25
POLICIES = ["first-come", "shortest-first", "best-fit"]

quarters = st.integers(0, 40).map(lambda number: number / 4)
# Work, arrival, and the least size of a place for each job.
jobs_over_time = st.lists(
    st.tuples(quarters.map(lambda work: work + 0.25), quarters, st.sampled_from([1, 1, 2, 4])),
    min_size=1,
    max_size=9,
)


class Shared:
    """GPUs that offer the same layouts, and jobs that do not slow each other."""

    def __init__(self, jobs, layouts=LAYOUTS, gpus=1, worth=None):
        self.work, self.arrivals, self.least = zip(*jobs, strict=True)
        self.sizes = [size for layout in layouts for size in layout]
        ends = list(accumulate(map(len, layouts), initial=0))
        self.ranges = tuple(range(*pair) for pair in pairwise(ends))
        self.layout_of = [at for at, own in enumerate(layouts) for _ in own]
        worth = worth or {size: size / 4 for size in (1, 2, 4)}
        self.room = GpuCapacity(
            tuple(range(len(self.sizes))),
            offers=[self.ranges] * gpus,
            fits=self.fits,
            worth=lambda seats: sum(worth[self.sizes[seat.place]] for seat in seats),
            mix=lambda seats: tuple((self.least[seat.job], seat.place) for seat in seats),
        )

    def fits(self, seats):
        return all(self.sizes[seat.place] >= self.least[seat.job] for seat in seats)

    def queue(self, policy):
        return queue_of(policy, self.room, self.work, self.least)

    def change_s(self, before, after):
        return 0.0 if self.layout_of[before] == self.layout_of[after] else CHANGE_S

    def history(self, policy, limited=False):
        """Simulate the jobs; `limited`: GPUs that run jobs share the cores of a host."""
        tasks = list(map(Task, self.work, self.arrivals))

        def on_shared_host(busy):
            return lambda seats: [self.sizes[seat.place] / busy for seat in seats]

        return run(
            tasks,
            on_shared_host(1),
            self.queue(policy),
            [len(self.room.offers)],
            on_shared_host if limited else None,
            change_s=self.change_s,
        )


def plain_first_come(jobs):
    """One GPU, moment by moment: when each job ends, and how often the layout changed."""
    coming = sorted(range(len(jobs)), key=lambda job: jobs[job][1])
    waiting, ends, running, changes, layout, ready_s = [], {}, {}, 0, None, 0.0

    def held(sizes):
        free = list(sizes)
        for count, job in enumerate(waiting):
            large = [size for size in free if size >= jobs[job][2]]
            if not large:
                return count
            free.remove(large[0])
        return len(waiting)

    while coming or running:
        moments = [jobs[job][1] for job in coming[:1]] + list(running.values())
        now_s = min(moments)
        running = {place: end_s for place, end_s in running.items() if end_s > now_s}
        while coming and jobs[coming[0]][1] <= now_s:
            waiting.append(coming.pop(0))
        while waiting:
            if not running:
                best = max(LAYOUTS, key=held)
                changed = layout not in (None, best)
                changes, ready_s = changes + changed, now_s + changed * CHANGE_S
                layout = best
            work, _, least = jobs[waiting[0]]
            free = [at for at, size in enumerate(layout) if at not in running and size >= least]
            if not free:
                break
            job = waiting.pop(0)
            ends[job] = running[free[0]] = max(now_s, ready_s) + work / layout[free[0]]
    return [ends[job] for job in range(len(jobs))], changes


@given(jobs_over_time)
def test_one_gpu_does_what_a_plain_loop_does(jobs):
    history = Shared(jobs).history("first-come")
    assert (list(history.ends_s), history.layout_changes) == plain_first_come(jobs)


@pytest.mark.parametrize("policy", POLICIES)
@given(jobs=jobs_over_time, gpus=st.integers(1, 3), limited=st.booleans())
def test_a_gpu_changes_its_layout_without_jobs_and_takes_its_time(policy, jobs, gpus, limited):
    shared = Shared(jobs, gpus=gpus)
    history = shared.history(policy, limited)
    changes = 0
    for gpu in range(gpus):
        own = [each for each in history.stretches if each.gpu == gpu]
        layouts = [{shared.layout_of[seat.place] for seat in each.seats} for each in own]
        assert all(len(each) == 1 for each in layouts), "jobs at once are in one layout"
        for (before, after), (old, new) in zip(pairwise(own), pairwise(layouts), strict=True):
            assert after.start_s >= before.end_s + (CHANGE_S if old != new else 0)
            changes += old != new
    assert history.layout_changes == changes
    for job, (work, arrival_s, least) in enumerate(jobs):
        own = [
            (each, seat, speed)
            for each in history.stretches
            for seat, speed in zip(each.seats, each.speeds, strict=True)
            if seat.job == job
        ]
        (place,) = {seat.place for _, seat, _ in own}
        assert shared.sizes[place] >= least
        assert arrival_s <= history.starts_s[job] == own[0][0].start_s
        assert sum(each.seconds * speed for each, _, speed in own) == pytest.approx(work)
    for each in history.stretches:
        places = [seat.place for seat in each.seats]
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("policy", POLICIES)
@given(jobs=jobs_over_time, layout=st.sampled_from([(4,), (4, 1), (4, 2, 2)]))
def test_a_single_layout_is_the_sharing_without_a_choice(policy, jobs, layout):
    chosen, plain = Shared(jobs, [layout], gpus=2), Shared(jobs, [layout])
    plain.room = GpuCapacity(
        plain.room.places, plain.room.fits, plain.room.worth, plain.room.mix, hosts=[range(2)]
    )
    tasks = list(map(Task, plain.work, plain.arrivals))
    expected = run(
        tasks, lambda seats: [plain.sizes[seat.place] for seat in seats], plain.queue(policy), [2]
    )
    assert chosen.history(policy) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_that_wait_are_divided_among_the_idle_gpus(policy):
    four = Shared([(8, 0, 1)] * 4, gpus=2, worth={4: 1.0, 2: 0.7, 1: 0.4})
    assert four.history(policy).ends_s == (4,) * 4, "on two halves of each"
    two = Shared([(8, 0, 1)] * 2, gpus=2, worth={4: 1.0, 2: 0.7, 1: 0.4})
    assert two.history(policy).ends_s == (2,) * 2, "on all of each"


@pytest.mark.parametrize(("half", "place"), [(0.7, 1), (0.4, 0)])
def test_best_fit_divides_a_gpu_if_the_parts_do_more_work(half, place):
    shared = Shared([(8, 0, 1)] * 2, LAYOUTS[:2], worth={4: 1.0, 2: half})
    queue = shared.queue("best-fit")
    for job in (0, 1):
        queue.add(job)
    assert queue.take([()]) == JobStart(0, 0, place)


NAMES = ["bert-base-finetune-bs16", "resnet26-cifar10-bs128"]


def over_time(sharing, policy="first-come", gpus=1, at_once=None, **conditions):
    advisor = Advisor(**conditions)
    short, long = advisor.jobs(NAMES)
    arrivals = [Arrival(short), Arrival(short, 1), Arrival(long, 1), Arrival(long, 1)]
    fleet = Fleet(advisor.gpu, gpus, policy)
    return advisor.simulate(arrivals, sharing, fleet, at_once=at_once).simulation


@pytest.mark.parametrize("policy", POLICIES[:2])
def test_the_first_job_has_the_whole_gpu_and_then_those_that_wait_share_it(policy):
    simulation = over_time("mig", policy)
    assert simulation.layout_changes >= 1
    assert not simulation.confirmed_on_hardware
    assert simulation.first.layout == "mig=7g.141gb"
    first, *others = simulation.jobs
    assert all(first.end_s.p50 < each.start_s < first.end_s.p50 + 2 for each in others)


def test_one_at_once_is_the_layout_of_one_instance():
    chosen, named = (over_time(each, at_once=1) for each in ("mig", "mig=7g.141gb"))
    assert (chosen.jobs, chosen.energy_j) == (named.jobs, named.energy_j)
    assert chosen.layout_changes == 0


def test_layouts_are_refused_where_they_cannot_change():
    with pytest.raises(InvalidInput, match="first-come"):
        over_time("mig", "max-min")
    with pytest.raises(NothingFits, match="no MIG"):
        over_time("mig", gpu="l4-24gb")
    with pytest.raises(NothingFits, match="no MIG"):
        over_time("mig", gpus="h200-141gb:1,l4-24gb:1")
