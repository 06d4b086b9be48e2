"""MIG geometry a second time, obvious and slow: tries every place for everything.

Shares no code with `advisor.hardware.mig`. A row is (name, compute slices, memory slices,
most, starts), as a table of a driver says it.
"""

from functools import cache

from advisor.sharing import Instance, Mig, parse_sharing


def rows_of(known):
    return tuple(
        (row.name, row.compute_slices, row.memory_slices, row.max_instances, tuple(row.starts))
        for row in known.mig
    )


def is_valid(places, rows, driver=None):
    """Whether one GPU can hold `places`, pairs of a row's number and a start, at once."""
    taken = set()
    for number, start in places:
        _, _, size, _, starts = rows[number]
        slices = set(range(start, start + size))
        if start not in starts or slices & taken:
            return False
        taken |= slices
    numbers = [number for number, _ in places]
    if any(numbers.count(number) > rows[number][3] for number in numbers):
        return False
    if sum("+me" in rows[number][0] for number in numbers) > 1:
        return False
    shapes = {rows[number][1:3] for number in numbers}
    return not (driver is not None and driver < 510 and (4, 4) in shapes and (3, 4) in shapes)


@cache
def _valid_sets(shapes, driver):
    """By number and start, so that GPUs with the same geometry are worked out once."""
    # Grown place by place: whatever is invalid stays so, whatever is added.
    found = [()]
    for number, (*_, starts) in enumerate(shapes):
        for start in starts:
            each = (number, start)
            found += [(*held, each) for held in found if is_valid((*held, each), shapes, driver)]
    return tuple(frozenset(held) for held in found if held)


def valid_sets(rows, driver=None):
    """Every valid non-empty set, as frozensets of (name, start)."""
    shapes = tuple(("+me" if "+me" in name else "", *rest) for name, *rest in rows)
    return [
        frozenset((rows[number][0], start) for number, start in held)
        for held in _valid_sets(shapes, driver)
    ]


def maximal(sets):
    """Those of `sets` that no one place more turns into another of them."""
    every = set(sets)
    places = {place for held in every for place in held}
    return {held for held in every if not any(held | {p} in every for p in places - held)}


def instances(text: str) -> tuple[Instance, ...]:
    sharing = parse_sharing(f"mig={text}")
    assert isinstance(sharing, Mig)
    return sharing.instances


def multisets(sets):
    return {tuple(sorted(name for name, _ in held)) for held in sets}


def places(layout):
    return frozenset((each.profile, each.start) for each in layout)
