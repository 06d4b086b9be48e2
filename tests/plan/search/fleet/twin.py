"""All plans of some columns, one by one: slow, and obvious."""

from collections import Counter

from advisor.plan.search.fleet.fleet_groups import PlacedGroup


def every_plan(columns, counts, gpus):
    """Every order of columns on every GPU that runs each job once."""

    def further(left, free_s, plan):
        if not left.total():
            yield plan
        for column in columns:
            needed = Counter(column.team)
            if needed <= left:
                for gpu in range(gpus):
                    own = [each.group for each in plan if each.gpu == gpu]
                    start_s = free_s[gpu] + (column.after_s(own[-1]) if own else 0.0)
                    after_s = list(free_s)
                    after_s[gpu] = start_s + column.runs_s
                    placed = PlacedGroup(column, gpu, start_s)
                    yield from further(left - needed, after_s, [*plan, placed])

    yield from further(Counter(dict(enumerate(counts))), [0.0] * gpus, [])


def least_cost(columns, problem):
    plans = every_plan(columns, problem.counts, problem.gpus)
    return min(problem.cost(plan) for plan in plans)
