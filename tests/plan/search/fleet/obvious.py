"""Plans that anybody would think of, forecast one by one: what an answer is held against."""

from math import fsum

from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives.pace import throughput
from advisor.plan.rules import FitsMemory, first_broken, rules
from advisor.prediction.power import idle_power_w
from advisor.sharing import Mps, Naive, Serial


def alone_s(job):
    return job.work_steps * job.profile.step_s


def greedy_costs(jobs, gpu, predictor, terms):
    """What each greedy plan costs, by its name."""
    # Jobs that take equally long are in the order in which they were given, copies together.
    # Of a throughput all are: each counts by its slowdown.
    length = (lambda _: 1.0) if terms.objective == "throughput" else alone_s
    longest = sorted(jobs, key=lambda job: (-length(job), jobs.index(job)))
    found = {"one after another": cost_of([[job] for job in longest], Serial(), predictor, terms)}
    for way in (Mps(), Naive()):
        for order in (longest, longest[::-1]) if way == Mps() else (longest,):
            for most in (2, 3, 4, 8):
                batches = in_batches(order, most, way, gpu=gpu, predictor=predictor, terms=terms)
                name = f"{way} {most} {'longest' if order is longest else 'shortest'} first"
                found[name] = cost_of(batches, way, predictor, terms)
    return found


def in_batches(order, most, way, *, gpu, predictor, terms):
    """Jobs in this order, a new batch where one is full or whatever does not fit."""
    fits = FitsMemory(gpu, terms.conditions.memory_margin)
    batches = []
    for job in order:
        together = [*batches[-1], job] if batches else []
        if (
            together
            and len(together) <= most
            and first_broken(rules(gpu, terms.conditions), together, way) is None
            and fits.broken(Mixes(together, predictor).whole(way)) is None
        ):
            batches[-1] = together
        else:
            batches.append([job])
    return batches


def cost_of(batches, way, predictor, terms):
    """Each batch on the GPU that is free first: nothing passes between two."""
    free_s, ends, used_j = [0.0] * terms.gpus, [], []
    takes = [taken(batch, way if len(batch) > 1 else Serial(), predictor, terms)
             for batch in batches]  # fmt: skip
    for batch, (ends_s, joules) in zip(batches, takes, strict=True):
        on = free_s.index(min(free_s))
        ends += [(job, free_s[on] + end_s) for job, end_s in zip(batch, ends_s, strict=True)]
        free_s[on] += max(ends_s)
        used_j.append(joules)
    jobs = [job for job, _ in ends]
    match terms.objective:
        case "makespan" | "throughput":
            return max(free_s)
        case "mean-completion":
            return fsum(end_s for _, end_s in ends) / len(ends)
        case "deadlines":
            return sum(job.deadline_s is not None and end_s > job.deadline_s for job, end_s in ends)
        case "energy":
            idle_s = fsum(max(free_s) - each for each in free_s)
            return fsum(used_j) + idle_s * idle_power_w([job.profile for job in jobs])


def taken(batch, way, predictor, terms):
    """When each job of a batch ends, and its joules; of a throughput all jobs are equally long."""
    found = forecast(Mixes(batch, predictor), way)
    if terms.objective == "throughput":
        return [len(batch) / throughput(found.prediction, terms.level)] * len(batch), 0.0
    ends_s = [each.at(terms.level) for each in found.ends_s]
    return ends_s, found.energy_j.at(terms.level)
