"""How an answer differs from the stored one, one line for each quantity.

Plans are compared by rank and kind. Where the search chose another plan of the same kind, only
what plans are ranked by is compared. Plans that cost the same may swap ranks.
"""

import re
from itertools import combinations, zip_longest

SAME = 0.005
SAME_FOUND = 0.02  # of plans for many jobs or several GPUs
MOST_PLANS = 6
# Differences that do not count, in the quantity's own unit.
_SMALL = {"oom": 0.005, "slowed_by": 0.002}


def to_store(rows):
    """The rows that are stored; the others are there so that plans can be looked for."""
    return rows[:MOST_PLANS]


def differences(question, stored, now):
    """Lines of plan, quantity, stored, now and the difference in per cent; none: the same."""
    same = SAME_FOUND if is_for_many(question) else SAME
    if not _is_ranking(question, stored, now):
        for before, after in zip_longest(stored, to_store(now), fillvalue={}):
            yield from _of_row(before, after, same)
        return
    pairs = _pairs(stored, now)
    for rank, before in enumerate(stored):
        if rank not in pairs:
            yield _line(before, "rank", rank + 1, "none")
            continue
        pair = before, now[pairs[rank]]
        if _where(pair[0]) != _where(pair[1]):
            pair = _ranked_by(question, pair[0]), _ranked_by(question, pair[1])
        yield from _of_row(*pair, same)
    yield from _order(question, stored, now, pairs, same)


def is_for_many(question):
    """Whether it is answered by one plan, for many jobs or several GPUs."""
    return "--gpus" in question or ":10" in question


def _is_ranking(question, stored, now):
    plain = question.startswith("recommend")
    return plain and all("kind" in row for row in [*stored, *now])


def _pairs(stored, now):
    """Which plan of `now` is each of `stored`: the very same, else the next of its kind."""
    pairs = {}
    for mark in (_where, _kind):
        for rank, before in enumerate(stored):
            free = (at for at in range(len(now)) if at not in pairs.values())
            found = next((at for at in free if mark(now[at]) == mark(before)), None)
            if rank not in pairs and found is not None:
                pairs[rank] = found
    return pairs


def _order(question, stored, now, pairs, same):
    for one, other in combinations(sorted(pairs), 2):
        tied = not [*_of_row(*(_ranked_by(question, stored[rank]) for rank in (one, other)), same)]
        if pairs[one] > pairs[other] and not tied:
            yield _line(stored[one], "rank", one + 1, pairs[one] + 1)
    for at in range(max(pairs.values(), default=-1)):
        if at not in pairs.values():
            yield _line(now[at], "rank", "none", at + 1)


def _kind(row):
    return row["kind"], row.get("cap_w")


def _where(row):
    """The plan, whatever the places of its MIG instances and the order of its groups."""
    return sorted(re.sub(r"@\d+", "", row["plan"]).split(";")), row.get("cap_w")


def _ranked_by(question, row):
    """What plans are ranked by, with the plan's name."""
    names = ["makespan_s"]
    if "throughput" in question:
        names = ["speedup"]
    elif "energy" in question:
        names = ["energy_j"]
    elif "mean-completion" in question:
        names = ["speedup", "makespan_s"]
    middle = {name: row[name] for name in names if name in row}
    return {"plan": row["plan"]} | {
        name: value[1] if isinstance(value, list) else value for name, value in middle.items()
    }


def _of_row(before, after, same):
    for name, old in before.items():
        if name == "plan":
            continue
        new = after.get(name)
        many = isinstance(old, list)
        if many != isinstance(new, list):
            yield _line(before, name, old, new)
            continue
        for place, pair in enumerate(zip_longest(old, new) if many else [(old, new)]):
            if not _alike(name, *pair, same):
                yield _line(before, f"{name}[{place}]" if many else name, *pair)


def _alike(name, old, new, same):
    if not all(isinstance(each, int | float) for each in (old, new)):
        return old == new
    return abs(new - old) <= max(same * abs(old), _SMALL.get(name, 0.0))


def _line(row, name, old, new):
    change = ""
    if isinstance(old, int | float) and isinstance(new, int | float) and old and name != "rank":
        change = f"{new / old - 1:+.2%}"
    return f"  {row.get('plan', 'answer'):40} {name:20} {old!s:>14} {new!s:>14} {change:>9}"
