from itertools import permutations
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from advisor.planning.assignment import cheapest, least_worst


@st.composite
def cases(draw):
    kinds = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, 3), min_size=kinds, max_size=kinds))
    value = st.one_of(st.integers(-5, 20).map(float), st.just(inf))
    row = st.lists(value, min_size=kinds, max_size=kinds)
    return draw(st.lists(row, min_size=1, max_size=4)), counts


def every_way(cost, counts):
    """The slow, obvious twin: all ways to put jobs into places, by what each job costs."""
    places = [kind for kind, count in enumerate(counts) for _ in range(count)]
    for way in permutations(places, len(cost)):
        each = [row[kind] for row, kind in zip(cost, way, strict=True)]
        if max(each) < inf:
            yield each


def paid(cost, kinds):
    return [row[kind] for row, kind in zip(cost, kinds, strict=True)]


def within(kinds, counts):
    return all(kinds.count(kind) <= count for kind, count in enumerate(counts))


@given(cases())
def test_no_other_way_to_place_the_jobs_is_cheaper(case):
    cost, counts = case
    ways = list(every_way(cost, counts))
    kinds = cheapest(cost, counts)
    if kinds is None:
        assert ways == []
    else:
        assert within(kinds, counts)
        assert sum(paid(cost, kinds)) == min(map(sum, ways))


@given(cases())
def test_no_other_way_to_place_the_jobs_has_a_better_worst_job(case):
    cost, counts = case
    ways = list(every_way(cost, counts))
    kinds = least_worst(cost, counts)
    if kinds is None:
        assert ways == []
    else:
        each = paid(cost, kinds)
        assert within(kinds, counts)
        assert (max(each), sum(each)) == min((max(way), sum(way)) for way in ways)
