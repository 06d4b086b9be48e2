"""Every plan there is for a few jobs on one GPU, listed one after another; plain on purpose.

It knows layouts, and nothing of the search: jobs go to partitions in every way, partitions are
shared in every way, and groups run in every order. `Toy` predicts them by a few plain rules.
"""

from itertools import permutations, product
from random import Random

from advisor.hardware.mig import layouts, place, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.job_sets import EQUAL_GRID
from advisor.plan.rules import broken_rule, memory_problem
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.sharing import (
    Group,
    Hybrid,
    Instance,
    Mig,
    Mps,
    Naive,
    Part,
    Phases,
    Place,
    Serial,
    one_job_each,
)
from advisor.workload.job import Job
from tests import synthetic

IDLE_W, MPS_GAIN = 75.0, 0.8
NAMES = (
    "resnet26-cifar10-bs128",
    "resnet50-imagenet64-bs128",
    "bert-base-finetune-bs16",
    "resnet152-imagenet-bs32",
)


def room_steps(profiles, share, sharing):
    """Seconds of a step of each of the jobs in a partition with so much of the GPU."""
    if len(profiles) == 1 and not isinstance(sharing, Mps):
        return [max(profiles[0].host_s, profiles[0].gpu_s / share)]
    busy_s = sum(each.gpu_s for each in profiles) / share
    if isinstance(sharing, Naive):
        return [max(each.host_s, 1.6 * busy_s) for each in profiles]
    limits = sharing.limits or (100.0,) * len(profiles)
    # Whoever has much memory suffers more: so that sets differ in more than one number.
    worse = [1 + each.memory.device_mib / 3e3 for each in profiles]
    return [
        max(each.host_s, MPS_GAIN * busy_s * bad, each.gpu_s / share * 100 / limit)
        for each, limit, bad in zip(profiles, limits, worse, strict=True)
    ]


class Toy:
    """Partitions slow each other a little; the interval is wider for jobs that wait for hosts."""

    def __init__(self, gpu):
        self.gpu = gpu

    def surrogate(self, profiles):
        """It is fast enough itself."""

    def predict(self, profiles, sharing):
        if isinstance(sharing, Mig):
            sharing = one_job_each(sharing.instances)
        steps, fits = self._steps(profiles, sharing)
        powers = [200.0 * each.gpu_s / step for each, step in zip(profiles, steps, strict=True)]
        alone = isinstance(sharing, Serial)
        jobs = tuple(
            self._job(profile, step_s, own_w + IDLE_W / (1 if alone else len(profiles)))
            for profile, step_s, own_w in zip(profiles, steps, powers, strict=True)
        )
        total_w = IDLE_W + sum(powers) / (len(powers) if alone else 1)
        return MixPrediction(
            gpu=self.gpu.key,
            sharing=sharing,
            jobs=jobs,
            memory_total_mib=1.0,
            memory_capacity_mib=1.0,
            oom_probability=float(not fits),
            weighted_speedup=1.0 if alone else sum(1 / job.slowdown for job in jobs),
            power_w=Interval(total_w, total_w, total_w),
            gract=None,
            smact=None,
            confirmed_on_hardware=not isinstance(sharing, Hybrid),
        )

    def _steps(self, profiles, sharing):
        held = [each.memory.device_mib for each in profiles]
        if isinstance(sharing, Serial):
            return [each.step_s for each in profiles], max(held) <= self.gpu.usable_mib
        if not isinstance(sharing, Hybrid):
            return room_steps(profiles, 1.0, sharing), sum(held) <= self.gpu.usable_mib
        place(self.gpu, sharing.instances)
        steps, fits, whole = {}, True, max(each.compute_slices for each in self.gpu.mig)
        for each in sharing.places:
            instance = profile_of(self.gpu, each.instance.profile)
            fits &= sum(held[job - 1] for job in each.jobs) <= instance.memory_mib
            factor = (1 + 0.04 * (len(sharing.partitions) - 1)) * (0.9 + 0.1 * len(each.partitions))
            for partition in each.partitions:
                slices = partition.slices or instance.compute_slices
                own = [profiles[job - 1] for job in partition.jobs]
                found = room_steps(own, slices / whole, partition.sharing)
                steps |= {job: factor * s for job, s in zip(partition.jobs, found, strict=True)}
        return [steps[job] for job in sorted(steps)], fits

    def _job(self, profile, step_s, power_w):
        around = Interval(0.9 * step_s, step_s, 1.1 * step_s * (1.2 - 0.2 * profile.busy_share))
        held = profile.memory.device_mib
        steps = profile.workload.steps_per_epoch
        return JobPrediction(
            job=profile.name,
            step_s=around,
            epoch_s=steps and around.scaled(steps),
            slowdown=step_s / profile.step_s,
            memory_mib=held,
            memory_min_mib=held,
            memory_interval_mib=Interval(held, held, held),
            oom_probability=0.0,
            energy_step_j=around.scaled(power_w),
        )


def ways(count):
    """Every way for so many jobs to share the whole GPU."""
    if count == 1:
        return [Naive()]
    return [Naive(), Mps(), *(Mps((float(limit),) * count) for limit in EQUAL_GRID)]


def on_instances(jobs, gpu):
    """Every way to put `jobs` on instances; of ways that differ in equal parts only, the first."""
    kinds, seen, layouts_seen = [jobs.index(job) for job in jobs], set(), set()
    for layout in layouts(gpu):
        profiles = tuple(sorted(each.profile for each in layout))
        if profiles in layouts_seen:
            continue
        layouts_seen.add(profiles)
        cuts = ([c for c in compute_sets(gpu, each.profile) if len(c) > 1] for each in layout)
        for sizes in product(*([(), *own] for own in cuts)):
            rooms = [(at, size) for at, own in enumerate(sizes) for size in own or [None]]
            for where in product(range(len(rooms)), repeat=len(jobs)):
                yield from _shared(layout, rooms, where, kinds, seen)


def _shared(layout, rooms, where, kinds, seen):
    """Jobs in these rooms, shared in every way that was not `seen` yet."""
    used = sorted(set(where))
    inside = [tuple(n for n, room in enumerate(where, 1) if room == each) for each in used]
    for how in product(*([Naive(), Mps()] if len(own) > 1 else [Naive()] for own in inside)):
        parts, marks = {}, {}
        for room, own, sharing in zip(used, inside, how, strict=True):
            at, size = rooms[room]
            same = tuple(sorted(kinds[n - 1] for n in own))
            parts.setdefault(at, []).append(Part(own, sharing, size))
            marks.setdefault(at, []).append((size or 0, same, str(sharing)))
        mark = tuple(sorted((layout[at].profile, *sorted(own)) for at, own in marks.items()))
        if mark not in seen:
            seen.add(mark)
            places = [
                Place(Instance(layout[at].profile, layout[at].start), tuple(own))
                for at, own in parts.items()
            ]
            yield Hybrid(tuple(places))


def partitions(items):
    """Every way to put `items` into groups, without order."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for at, group in enumerate(smaller):
            yield [*smaller[:at], [first, *group], *smaller[at + 1 :]]


def orders(jobs):
    """Every way to run groups of jobs one after another, of equal jobs the first.

    Not each job alone: the order of these goes by medians at any level.
    """
    kinds, seen = [jobs.index(job) for job in jobs], set()
    for partition in partitions(list(range(len(jobs)))):
        for order in permutations(tuple(sorted(group)) for group in partition):
            mark = tuple(tuple(kinds[at] for at in group) for group in order)
            if 1 < len(order) < len(jobs) and mark not in seen:
                seen.add(mark)
                yield order


def every_plan(jobs, gpu, conditions):
    """The forecast of every plan that memory and rules allow."""
    mixes = Mixes(jobs, Toy(gpu))
    tried = [Serial(), *ways(len(jobs)), *(on_instances(jobs, gpu) if gpu.mig else ())]
    for order in orders(jobs):
        for how in product(*(ways(len(group)) for group in order)):
            groups = [
                Group(tuple(at + 1 for at in group), sharing)
                for group, sharing in zip(order, how, strict=True)
            ]
            tried.append(Phases(tuple(groups)))
    for sharing in tried:
        allowed = broken_rule(jobs, sharing, gpu, conditions) is None
        if allowed and memory_problem(mixes.whole(sharing), gpu) is None:
            yield forecast(mixes, sharing)


def drawn_jobs(seed, count):
    """So many jobs of a few kinds, each kind with its own length, memory and wishes."""
    random = Random(f"{seed} {count}")
    ruled = random.random() < 0.5
    made = [
        Job(
            synthetic.profile(
                name,
                host_s=random.choice([0.005, 0.01, 0.02]),
                gpu_s=random.uniform(0.001, 0.015),
                memory_mib=random.choice([1000, 3000, 6000, 11000]),
            ),
            epochs=random.choice([0.5, 1, 2, 3]),
            deadline_s=random.choice([None, 100.0, 1000.0]),
            user=random.choice([None, "ada"]) if ruled else None,
            isolated=ruled and random.random() < 0.2,
            data_parallel=ruled and random.random() < 0.15,
        )
        for name in NAMES[: random.randint(1, count)]
    ]
    made[0] = Job(made[0].profile, epochs=made[0].epochs, deadline_s=300.0)
    return [made[0], *(random.choice(made) for _ in range(count - 1))]
