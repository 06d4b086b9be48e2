"""Every way for some jobs to have a GPU at once, listed one after another; plain on purpose.

It knows layouts and what users, isolation and data-parallel jobs forbid, and nothing of the solver:
jobs go to partitions in every way, and partitions are shared in every way.
"""

from itertools import product

from advisor.hardware.gpu_partition import compute_sets
from advisor.hardware.mig_layouts import layouts, profile_of
from advisor.plan.search.limit_tuning import EQUAL_GRID
from advisor.sharing import Group, Hybrid, Instance, Mps, Naive, Part, Place
from tests.plan.search.toy import slower


class Plan:
    """Rooms of one candidate: (share of the GPU, jobs by position, sharing, factor on steps)."""

    def __init__(self, partitions, group, factor):
        self.partitions, self.group, self.factor = partitions, group, factor


def whole_plans(jobs, gpu):
    everyone = tuple(range(len(jobs)))
    if sum(job.profile.memory.device_mib for job in jobs) > gpu.usable_mib:
        return
    if len(jobs) > 1 and any(job.isolated for job in jobs):
        return
    ways = [Naive(), Mps(), *(Mps((float(limit),) * len(jobs)) for limit in EQUAL_GRID)]
    if len(jobs) == 1 or not of_one_user(jobs):
        ways = ways[:1]
    for sharing in ways:
        numbers = tuple(at + 1 for at in everyone)
        yield Plan(
            [(1.0, everyone, sharing)],
            Group(numbers, sharing),
            lambda left: dict.fromkeys(left, 1.0),
        )


def mig_plans(jobs, gpu):
    if any(job.data_parallel for job in jobs):
        return
    kinds = set()
    for layout in layouts(gpu):
        kind = tuple(sorted(each.profile for each in layout))
        if kind in kinds:
            continue
        kinds.add(kind)
        cuts = [
            [(), *(c for c in compute_sets(gpu, each.profile) if len(c) > 1)] for each in layout
        ]
        for parts in product(*cuts):
            yield from cut_plans(jobs, gpu, layout, parts)


def cut_plans(jobs, gpu, layout, parts):
    partitions = [
        (index, size)
        for index, own in enumerate(parts)
        for size in own or [profile_of(gpu, layout[index].profile).compute_slices]
    ]
    capacities = [profile_of(gpu, each.profile).memory_mib for each in layout]
    for where in product(range(len(partitions)), repeat=len(jobs)):
        if not bearable(jobs, [partitions[partition][0] for partition in where], capacities):
            continue
        used = sorted(set(where))
        inside = [
            tuple(at for at, partition in enumerate(where) if partition == each) for each in used
        ]
        ways = [
            [Naive(), Mps()] if len(own) > 1 and of_one_user([jobs[at] for at in own])
            else [Naive()]
            for own in inside
        ]  # fmt: skip
        for sharings in product(*ways):
            yield mig_plan(layout, parts, [partitions[each] for each in used], inside, sharings)


def bearable(jobs, instance_at, capacities):
    """Whether instances have the memory, and isolated jobs theirs to themselves."""
    held = [0.0] * len(capacities)
    for job, index in zip(jobs, instance_at, strict=True):
        held[index] += job.profile.memory.device_mib
        if job.isolated and instance_at.count(index) > 1:
            return False
    return all(mib <= capacity for mib, capacity in zip(held, capacities, strict=True))


def of_one_user(jobs):
    return len({job.user for job in jobs}) == 1


def mig_plan(layout, parts, partitions, inside, sharings):
    instance_at = [index for index, _ in partitions]
    places = []
    for index in sorted(set(instance_at)):
        own = [
            (size, tuple(at + 1 for at in jobs), sharing)
            for (at_home, size), jobs, sharing in zip(partitions, inside, sharings, strict=True)
            if at_home == index
        ]
        instance = Instance(layout[index].profile, layout[index].start)
        if parts[index]:
            places.append(Place(instance, tuple(Part(*each, size) for size, *each in own)))
        else:
            places.append(Place(instance, (Part(own[0][1], own[0][2]),)))
    built = [
        (size / 8, jobs, sharing)
        for (_, size), jobs, sharing in zip(partitions, inside, sharings, strict=True)
    ]

    def factor(left):
        """Of each partition while the partitions `left` still have jobs."""
        return {
            partition: slower(
                len(left), sum(instance_at[other] == instance_at[partition] for other in left)
            )
            for partition in left
        }

    return Plan(built, Hybrid(tuple(places)), factor)


def each_kind_once(plans, jobs):
    """Of plans that differ in which of equal partitions, or of equal jobs, is whose, the first."""
    kinds, seen = [jobs.index(job) for job in jobs], set()

    def content(jobs_of_room, sharing):
        return tuple(sorted(kinds[number - 1] for number in jobs_of_room)), str(sharing)

    for plan in plans:
        instance_at = []
        for place in plan.group.places if isinstance(plan.group, Hybrid) else ():
            partitions = [(partition.slices or 0, *content(partition.jobs, partition.sharing))
                     for partition in place.partitions]  # fmt: skip
            instance_at.append((place.instance.profile, *sorted(partitions)))
        mark = tuple(sorted(instance_at)) or str(plan.group.sharing)
        if mark not in seen:
            seen.add(mark)
            yield plan
