from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.plan.search.limit_tuning import promising
from advisor.prediction.surrogate_features import LIMIT_GRID

VECTORS = np.array(list(product(LIMIT_GRID, repeat=2)), dtype=np.float64)
SAME = [at for at, (one, other) in enumerate(VECTORS) if one == other]


def truth(work):
    """Seconds of a step of each job: its limit helps it, and slows its mate."""
    own, mate = VECTORS, VECTORS[:, ::-1]
    return np.array(work) / own * (1 + mate / 100)


def worst(steps_s):
    return np.asarray(steps_s.max(axis=1))


def asked(rough_s, true_s, more):
    found = []

    def predicted_s(at):
        found.append(at)
        return true_s[at]

    order = promising(VECTORS, rough_s, predicted_s, worst, (SAME, more))
    return order, found


works = st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0))


@settings(deadline=None)
@given(works)
def test_where_rough_answers_are_right_the_first_try_is_the_best_there_is(work):
    true_s = truth(work)
    order, _ = asked(true_s, true_s, 1)
    assert worst(true_s)[order[0]] == worst(true_s).min()


@settings(deadline=None)
@given(works, st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)))
def test_rough_answers_that_err_alike_for_every_limit_are_seen_through(work, bias):
    true_s = truth(work)
    order, _ = asked(true_s * np.array(bias), true_s, 1)
    assert worst(true_s)[order[0]] <= 1.001 * worst(true_s).min()


@settings(deadline=None)
@given(works, works, st.integers(0, 12))
def test_nothing_is_predicted_twice_and_the_best_of_what_was_comes_first(work, wrong, more):
    true_s = truth(work)
    order, tried = asked(truth(wrong), true_s, more)
    assert tried[: len(SAME)] == SAME
    assert len(tried) == len(set(tried)) == len(SAME) + more
    assert sorted(order) == sorted(tried)
    costs = worst(true_s)[order]
    assert all(costs[:-1] <= costs[1:] * (1 + 1e-9))


def test_there_are_no_more_tries_than_limits():
    true_s = truth((1.0, 2.0))
    order, _ = asked(true_s, true_s, 1000)
    assert len(order) == len(VECTORS)
