"""Plans for several GPUs that anybody would think of, and for few jobs all there are."""

from dataclasses import replace
from itertools import combinations, permutations, product
from math import fsum

from hypothesis import strategies as st

from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost
from advisor.plan.ranking import recommended
from advisor.plan.rules import UNCONDITIONAL, broken_rule, memory_problem
from advisor.plan.values import GpuPool
from advisor.prediction.power import idle_power_w
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.brute_force import partitions
from tests.plan.stand_in import NO_MIG, StandIn

AIMS = ("makespan", "mean-completion", "throughput", "energy", "deadlines")
PROFILES = [
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002),
    synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2),
    synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.015, memory_mib=40_000),
    synthetic.profile("gpt2-small-finetune-bs2", host_s=0.03, gpu_s=0.01, memory_mib=60_000),
    synthetic.profile("dlrm-29gb-bs128", host_s=0.01, gpu_s=0.004, memory_mib=100_000),
]


def job_of(profile, length_s, due_s):
    epoch_s = profile.workload.steps_per_epoch * profile.step_s
    return Job(profile, epochs=length_s / epoch_s, deadline_s=due_s)


def drawn(most=9):
    """Which profile, seconds alone and deadline of each job: `made` makes them."""
    one = st.tuples(
        st.sampled_from(range(len(PROFILES))),
        st.sampled_from([600, 1200, 3600]),
        st.sampled_from([None, 1200.0, 3000.0, 9000.0]),
    )
    return st.lists(one, min_size=1, max_size=most)


def made(drawn, aim):
    """The jobs; deadlines come before every other aim, so that only "deadlines" has some."""
    dated = aim == "deadlines"
    return [
        job_of(PROFILES[at], length_s, due_s if dated else None) for at, length_s, due_s in drawn
    ]


def planned(jobs, predictor=None, gpu=NO_MIG, gpus=1, host_memory_mib=None, **terms):
    """The plans for equal GPUs of one host."""
    pool = GpuPool(
        gpu=gpu,
        hosts=1,
        host_gpus=gpus,
        jobs=tuple(jobs),
        predictor=predictor or StandIn(gpu),
        host_memory_mib=host_memory_mib,
    )
    return recommended([pool], **{"objective": "makespan", **terms})


def least_cost(found, level="p50"):
    """That of the cheapest plan: the first may be a simpler one that costs little more."""
    return min(known_cost(plan, found.ranked_by).at(level) for plan in found.plans)


def on_pools(*counts, jobs):
    """The plans for GPUs of several models: the first as profiled, others so many times as fast."""
    pools = []
    for gpus, host_gpus, faster in counts:
        own = [
            replace(job, profile=replace(job.profile, gpu_s=job.profile.gpu_s / faster))
            for job in jobs
        ]
        model = replace(NO_MIG, key=f"{NO_MIG.key}-{faster}")
        pools.append(
            GpuPool(
                gpu=model,
                hosts=gpus // host_gpus,
                host_gpus=host_gpus,
                jobs=tuple(own),
                predictor=StandIn(model),
            )
        )
    return recommended(pools, "makespan"), pools


class Twin:
    """What plans cost whose batches go, in order, each to the GPU that is free first."""

    def __init__(
        self, predictor, objective, gpus=1, level="p50", conditions=UNCONDITIONAL, gpu=NO_MIG
    ):
        self.predictor, self.objective, self.gpus = predictor, objective, gpus
        self.level, self.conditions, self.gpu, self._taken = level, conditions, gpu, {}

    def greedy(self, jobs):
        """The least cost of plans that fill batches by length, and of one after another."""
        # Of a throughput all jobs are equally long: each counts by its slowdown.
        paced = self.objective == "throughput"
        lengths_s = [0.0 if paced else -job.work_steps * job.profile.step_s for job in jobs]
        longest = sorted(jobs, key=lambda job: (lengths_s[jobs.index(job)], jobs.index(job)))
        costs = [self.cost([((job,), Serial()) for job in longest])]
        orders = ((Mps(), longest), (Mps(), longest[::-1]), (Naive(), longest))
        for (way, order), most in product(orders, (2, 3, 4, 8)):
            costs.append(self.cost(self._filled(order, most, way)))
        return min(costs)

    def least(self, jobs):
        """The least cost of every plan without limits, by trying all of them."""
        costs = []
        for partition in partitions(list(jobs)):
            ways = [
                [Serial()]
                if len(group) == 1
                else [way for way in (Naive(), Mps()) if self._allowed(group, way)]
                for group in partition
            ]
            for how in product(*ways):
                batches = [(tuple(g), way) for g, way in zip(partition, how, strict=True)]
                costs += [self.cost(order) for order in permutations(batches)]
        return min(costs)

    def _allowed(self, batch, way):
        conditions = self.conditions
        if broken_rule(batch, way, self.gpu, conditions):
            return False
        mix = Mixes(batch, self.predictor).whole(way)
        return memory_problem(mix, self.gpu, conditions.memory_margin) is None

    def _filled(self, order, most, way):
        """Jobs in this order, a new batch where one is full or whatever does not fit."""
        batches = []
        for job in order:
            together = [*batches[-1], job] if batches else []
            if together and len(together) <= most and self._allowed(together, way):
                batches[-1] = together
            else:
                batches.append([job])
        return [(tuple(each), way if len(each) > 1 else Serial()) for each in batches]

    def cost(self, batches):
        free_s, ends, used_j = [0.0] * self.gpus, [], []
        for batch, way in batches:
            ends_s, joules = self._takes(batch, way)
            on = free_s.index(min(free_s))
            ends += [(job, free_s[on] + end_s) for job, end_s in zip(batch, ends_s, strict=True)]
            free_s[on] += max(ends_s)
            used_j.append(joules)
        match self.objective:
            case "makespan":
                return max(free_s)
            case "throughput":
                return max(free_s) / len(ends)
            case "mean-completion":
                return fsum(end_s for _, end_s in ends) / len(ends)
            case "deadlines":
                return max(end_s / job.deadline_s for job, end_s in ends if job.deadline_s)
            case "energy":
                idle_s = fsum(max(free_s) - each for each in free_s)
                return fsum(used_j) + idle_s * idle_power_w([job.profile for job, _ in ends])

    def _takes(self, batch, way):
        """When each job of a batch ends, and its joules; of a throughput all are equally long."""
        if (batch, way) not in self._taken:
            found = forecast(Mixes(batch, self.predictor), way)
            if self.objective == "throughput":
                takes = [len(batch) * found.equal_work.at(self.level)] * len(batch), 0.0
            else:
                joules = found.energy_j.at(self.level)
                takes = [each.at(self.level) for each in found.ends_s], joules
            self._taken[batch, way] = takes
        return self._taken[batch, way]


def least_makespan_s(pools, level="p50"):
    """The least makespan of batches on the GPUs of `pools`, by trying all orders and places.

    A job of several GPUs takes any of one host. Pauses between batches do not count.
    """
    hosts, first = [], 0
    for at, pool in enumerate(pools):
        for _ in range(pool.hosts):
            hosts.append((at, range(first, first + pool.host_gpus)))
            first += pool.host_gpus
    numbers = list(range(len(pools[0].jobs)))
    taken = {}

    def takes_s(at, batch):
        if (at, batch) not in taken:
            jobs = [pools[at].jobs[number] for number in batch]
            mixes, wide = Mixes(jobs, pools[at].predictor), max(job.gpus for job in jobs)
            ways = [Serial()] if len(jobs) == 1 else [Naive(), Mps()] if wide == 1 else []
            fitting = [
                way for way in ways if memory_problem(mixes.whole(way), pools[at].gpu) is None
            ]
            ends = [forecast(mixes, way).makespan_interval_s.at(level) for way in fitting]
            taken[at, batch] = min(ends, default=None)
        return taken[at, batch]

    def least(left, free_s):
        if not left:
            return max(free_s)
        best = float("inf")
        for batch in left:
            wide = max(pools[0].jobs[number].gpus for number in batch)
            for at, gpus in hosts:
                if (runs_s := takes_s(at, batch)) is not None:
                    for chosen in combinations(gpus, wide):
                        ends_s = list(free_s)
                        for gpu in chosen:
                            ends_s[gpu] = max(free_s[each] for each in chosen) + runs_s
                        best = min(best, least([each for each in left if each != batch], ends_s))
        return best

    parts = [[tuple(sorted(group)) for group in each] for each in partitions(numbers)]
    return min(least(part, [0.0] * first) for part in parts)
