"""All plans of some groups, one by one: slow, and obvious."""

from collections import Counter

from advisor.plan.search.fleet.placement import PlacedGroup


def every_plan(groups, counts, gpus):
    """Every order of groups on every GPU that runs each job once."""

    def further(left, free_s, plan):
        if not left.total():
            yield plan
        for group in groups:
            needed = Counter(group.members)
            if needed <= left:
                for gpu in range(gpus):
                    own = [each.group for each in plan if each.gpu == gpu]
                    start_s = free_s[gpu] + (group.after_s(own[-1]) if own else 0.0)
                    after_s = list(free_s)
                    after_s[gpu] = start_s + group.runs_s
                    placed = PlacedGroup(group, gpu, start_s)
                    yield from further(left - needed, after_s, [*plan, placed])

    yield from further(Counter(dict(enumerate(counts))), [0.0] * gpus, [])


def least_cost(groups, problem):
    plans = every_plan(groups, problem.counts, problem.gpus)
    return min(problem.cost(plan) for plan in plans)
