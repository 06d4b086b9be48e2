"""Every plan there is, tried one after another; slow and plain on purpose.

It knows layouts, rules of the toy GPU and what objectives mean, and nothing of the solver: jobs go
to rooms in every way, rooms are shared in every way, and groups run in every order.
"""

from itertools import permutations, product

from advisor.gpu.compute_instances import compute_sets
from advisor.gpu.layouts import layouts, profile_of
from advisor.planning.limits import EQUAL_GRID
from advisor.sharing import Compute, Divided, Group, Hybrid, Instance, Mps, Naive, Slot
from advisor.simulation.repartition import repartition_s
from tests.planning.solver.toy import IDLE_W, room_steps, slower


class Plan:
    """Rooms of one setup: (share of the GPU, jobs by position, sharing, factor on steps)."""

    def __init__(self, rooms, group, factor):
        self.rooms, self.group, self.factor = rooms, group, factor


def whole_plans(jobs, gpu):
    profiles = [job.profile for job in jobs]
    everyone = tuple(range(len(jobs)))
    if sum(each.memory.device_mib for each in profiles) > gpu.usable_mib:
        return
    ways = [Naive(), Mps(), *(Mps((float(limit),) * len(jobs)) for limit in EQUAL_GRID)]
    for sharing in ways[: 1 if len(jobs) == 1 else None]:
        numbers = tuple(at + 1 for at in everyone)
        yield Plan(
            [(1.0, everyone, sharing)],
            Group(numbers, sharing),
            lambda left: dict.fromkeys(left, 1.0),
        )


def mig_plans(jobs, gpu):
    seen = set()
    for layout in layouts(gpu):
        kinds = tuple(sorted(each.profile for each in layout))
        if kinds in seen:
            continue
        seen.add(kinds)
        cuts = [
            [(), *(c for c in compute_sets(gpu, each.profile) if len(c) > 1)] for each in layout
        ]
        for parts in product(*cuts):
            yield from cut_plans(jobs, gpu, layout, parts)


def cut_plans(jobs, gpu, layout, parts):
    rooms = [
        (home, size)
        for home, own in enumerate(parts)
        for size in own or [profile_of(gpu, layout[home].profile).compute_slices]
    ]
    for where in product(range(len(rooms)), repeat=len(jobs)):
        used = sorted(set(where))
        held = {home: 0.0 for home in range(len(layout))}
        for job, room in zip(jobs, where, strict=True):
            held[rooms[room][0]] += job.profile.memory.device_mib
        if any(
            mib > profile_of(gpu, layout[home].profile).memory_mib for home, mib in held.items()
        ):
            continue
        inside = [tuple(at for at, room in enumerate(where) if room == each) for each in used]
        ways = [[Naive(), Mps()] if len(own) > 1 else [Naive()] for own in inside]
        for sharings in product(*ways):
            yield mig_plan(layout, parts, [rooms[each] for each in used], inside, sharings)


def mig_plan(layout, parts, rooms, inside, sharings):
    homes = [home for home, _ in rooms]
    places = []
    for home in sorted(set(homes)):
        own = [
            (size, tuple(at + 1 for at in jobs), sharing)
            for (at_home, size), jobs, sharing in zip(rooms, inside, sharings, strict=True)
            if at_home == home
        ]
        instance = Instance(layout[home].profile, layout[home].start)
        if parts[home]:
            places.append(Divided(instance, tuple(Compute(*each) for each in own)))
        else:
            places.append(Slot(instance, own[0][1], own[0][2]))
    built = [
        (size / 8, jobs, sharing)
        for (_, size), jobs, sharing in zip(rooms, inside, sharings, strict=True)
    ]

    def factor(left):
        """Of each room while the rooms `left` still have jobs."""
        return {
            room: slower(len(left), sum(homes[other] == homes[room] for other in left))
            for room in left
        }

    return Plan(built, Hybrid(tuple(places)), factor)


def lived(jobs, plan, level):
    """When each job ends, and the joules until the last does: second by second, so to speak."""
    left = [job.work_steps for job in jobs]
    now_s, joules, ends = 0.0, 0.0, [0.0] * len(jobs)
    while any(work > 0 for work in left):
        steps, power_w = paces(jobs, plan, [at for at, work in enumerate(left) if work > 0], level)
        wait_s = min(left[at] * step for at, step in steps.items())
        now_s += wait_s
        joules += wait_s * power_w
        for at, step in steps.items():
            left[at] -= wait_s / step
            if left[at] < 1e-9 * jobs[at].work_steps:
                left[at], ends[at] = 0.0, now_s
    return ends, joules


def paces(jobs, plan, running, level):
    rooms = [
        (number, share, [at for at in own if at in running], sharing, own)
        for number, (share, own, sharing) in enumerate(plan.rooms)
    ]
    rooms = [room for room in rooms if room[2]]
    factor = plan.factor([room[0] for room in rooms])
    steps, power_w = {}, IDLE_W
    for number, share, own, sharing, first in rooms:
        if isinstance(sharing, Mps) and sharing.limits:
            kept = Mps(tuple(sharing.limits[first.index(at)] for at in own))
        else:
            kept = sharing
        found = room_steps([jobs[at].profile for at in own], share, kept)
        by = factor[number]
        for at, step_s in zip(own, found, strict=True):
            profile = jobs[at].profile
            power_w += 200.0 * profile.gpu_s / (by * step_s)
            wide = 1.1 * (1.2 - 0.2 * profile.busy_share) if level == "p95" else 1.0
            steps[at] = by * step_s * wide
    return steps, power_w


def cost(jobs, groups, objective, level):
    """What groups one after another cost; each is the positions of its jobs, and their plan."""
    if objective in ("throughput", "fairness", "energy-epoch"):
        return cost_of_paces(jobs, groups, objective, level)
    now_s, joules, ends, before = 0.0, 0.0, {}, None
    for positions, plan in groups:
        pause_s = 0.0 if before is None else repartition_s(before, plan.group)
        group_ends, group_j = lived([jobs[at] for at in positions], plan, level)
        begins_s = now_s + pause_s
        ends |= {at: begins_s + end for at, end in zip(positions, group_ends, strict=True)}
        joules += group_j + pause_s * IDLE_W
        now_s, before = begins_s + max(group_ends), plan.group
    return {
        "makespan": now_s,
        "mean-completion": sum(ends.values()) / len(jobs),
        "deadlines": max(
            ends[at] / job.deadline_s for at, job in enumerate(jobs) if job.deadline_s
        ),
        "energy": joules,
    }[objective]


def cost_of_paces(jobs, groups, objective, level):
    """Likewise, while all jobs of a group run."""
    takes, worst, epoch_j = [], 0.0, 0.0
    for positions, plan in groups:
        own = [jobs[at] for at in positions]
        steps, _ = paces(own, plan, list(range(len(own))), level)
        nominal, _ = paces(own, plan, list(range(len(own))), "p50")
        slow = [step / own[at].profile.step_s for at, step in steps.items()]
        takes.append(len(own) / sum(1 / each for each in slow))
        worst = max(worst, max(slow) / takes[-1])
        for at, step in steps.items():
            own_w = 200.0 * own[at].profile.gpu_s / nominal[at] + IDLE_W / len(own)
            epoch_j += own[at].profile.workload.steps_per_epoch * step * own_w
    if objective == "energy-epoch":
        return epoch_j
    return sum(takes) / len(jobs) * (worst if objective == "fairness" else 1)


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


def best(jobs, gpu, objective, level="p50", phases_on_mig=False):
    """The least cost of any plan, and of any without phases."""

    def ways(positions, alone):
        own = [jobs[at] for at in positions]
        plans = list(whole_plans(own, gpu))
        if gpu.mig and (alone or phases_on_mig):
            plans += mig_plans(own, gpu)
        return [(tuple(positions), plan) for plan in plans]

    everyone = tuple(range(len(jobs)))
    at_once = [cost(jobs, [way], objective, level) for way in ways(everyone, alone=True)]
    if objective in ("throughput", "fairness"):
        at_once.append(1.0)  # one after another, by definition
    known, in_groups = {}, []
    for partition in partitions(list(everyone)):
        if len(partition) < 2:
            continue
        for group in partition:
            known.setdefault(tuple(group), ways(sorted(group), alone=False))
        for order in permutations(partition):
            ways_of_each = [known[tuple(group)] for group in order]
            in_groups += [cost(jobs, each, objective, level) for each in product(*ways_of_each)]
    return min(at_once + in_groups), min(at_once, default=float("inf"))
