"""Every plan there is, lived through one after another; slow and plain on purpose.

It knows rules of the toy GPU and what objectives mean, and nothing of the solver: groups of jobs
share the GPU in every way, and run in every order.
"""

from dataclasses import dataclass
from itertools import permutations, product

from advisor.sharing import Group, Hybrid, Mps
from advisor.timeline.waiting_jobs import repartition_s
from tests.plan.search.every_plan import each_kind_once, mig_plans, whole_plans
from tests.plan.search.toy import IDLE_W, room_steps


@dataclass(frozen=True, slots=True)
class Way:
    """Jobs that have the GPU to themselves, and what comes of it.

    Attributes:
        group: How they share it, numbered among themselves.
        ends_s: Until each ends, by its position among all jobs; empty where only paces count.
        joules: Until the last ends.
        slow: Step over step alone of each, by its position, while all run.
    """

    group: Group | Hybrid
    ends_s: dict[int, float]
    joules: float
    slow: dict[int, float]

    @property
    def takes(self):
        """Time for what one after another does in a unit of time, for each of its jobs."""
        return len(self.slow) / sum(1 / each for each in self.slow.values())


def way(jobs, positions, plan, objective, level):
    """What comes of the jobs at `positions` under `plan`."""
    own = [jobs[at] for at in positions]
    if objective != "throughput":
        ends_s, joules = lived(own, plan, level)
        return Way(plan.group, dict(zip(positions, ends_s, strict=True)), joules, {})
    steps, _ = paces(own, plan, list(range(len(own))), level)
    slow = {positions[at]: step / own[at].profile.step_s for at, step in steps.items()}
    return Way(plan.group, {}, 0.0, slow)


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
    partitions = [
        (number, share, [at for at in own if at in running], sharing, own)
        for number, (share, own, sharing) in enumerate(plan.partitions)
    ]
    partitions = [partition for partition in partitions if partition[2]]
    factor = plan.factor([partition[0] for partition in partitions])
    steps, power_w = {}, IDLE_W
    for number, share, own, sharing, first in partitions:
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


def cost(jobs, ways, objective):
    """What groups one after another cost."""
    if objective == "throughput":
        return sum(each.takes for each in ways) / len(jobs)
    now_s, joules, ends, before = 0.0, 0.0, {}, None
    for each in ways:
        pause_s = 0.0 if before is None else repartition_s(before, each.group)
        ends |= {at: now_s + pause_s + end_s for at, end_s in each.ends_s.items()}
        joules += each.joules + pause_s * IDLE_W
        now_s, before = max(ends[at] for at in each.ends_s), each.group
    return {
        "makespan": now_s,
        "mean-completion": sum(ends.values()) / len(jobs),
        "deadlines": max(
            ends[at] / job.deadline_s for at, job in enumerate(jobs) if job.deadline_s
        ),
        "energy": joules,
    }[objective]


def orders(jobs):
    """Every way to run groups of jobs, two or more, one after another; of equal jobs the first."""
    kinds, seen = [jobs.index(job) for job in jobs], set()
    for partition in partitions(list(range(len(jobs)))):
        for order in permutations(tuple(sorted(group)) for group in partition):
            mark = tuple(tuple(kinds[at] for at in group) for group in order)
            if len(order) > 1 and mark not in seen:
                seen.add(mark)
                yield order


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


def best(jobs, gpu, objective, level="p50", *, root=True, phases_on_mig=False):
    """The least cost of any plan, and of any without phases."""

    def plans(own, on_mig):
        yield from whole_plans(own, gpu)
        if gpu.mig and root and on_mig:
            yield from mig_plans(own, gpu)

    def ways(positions):
        own = [jobs[at] for at in positions]
        return [way(jobs, positions, plan, objective, level) for plan in plans(own, phases_on_mig)]

    everyone = tuple(range(len(jobs)))
    at_once = [
        cost(jobs, [way(jobs, everyone, plan, objective, level)], objective)
        for plan in each_kind_once(plans(jobs, on_mig=True), jobs)
    ]
    if objective == "throughput":
        at_once.append(1.0)  # one after another, by definition
    known, in_groups = {}, []
    for order in orders(jobs):
        for group in order:
            known.setdefault(group, ways(group))
        ways_of_each = [known[group] for group in order]
        in_groups += [cost(jobs, each, objective) for each in product(*ways_of_each)]
    return min(at_once + in_groups, default=float("inf")), min(at_once, default=float("inf"))
