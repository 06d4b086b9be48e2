"""Pairs of ways in which the same jobs ran on one host, and how sure a lead or a gain is."""

from collections import Counter
from dataclasses import replace

import pytest

from advisor.hardware.gpus import gpu
from research.evaluate import evaluate
from research.pairs import pair_scores, pairs_of
from tests import synthetic
from tests.fitted import folds_fitted_once
from tests.research.campaign import PROFILES, campaign

__all__ = ["folds_fitted_once"]

HOSTS = ("one", "other")


@pytest.fixture(scope="module")
def evaluation():
    """The same runs on two hosts; on one of them, each job ran alone, at 1.2 of its profile."""
    runs = [replace(run, id=f"{host}-{run.id}") for run in campaign() for host in HOSTS]
    alone = [
        synthetic.run([each], "naive", 1.2, f"one-solo-{name}") for name, each in PROFILES.items()
    ]
    return evaluate(PROFILES, [*runs, *alone], gpu("h200-141gb"))


def test_the_same_jobs_on_one_host_in_two_ways_are_a_pair_the_simpler_way_first(evaluation):
    modes = Counter(
        (pair.simpler.sharing.mode, pair.other.sharing.mode) for pair in pairs_of(evaluation)
    )
    sets = 10  # of each host
    both = ("naive", "mps"), ("naive", "mps-limits"), ("mps", "mps-limits")
    gains = ("serial", "naive"), ("serial", "mps"), ("serial", "mps-limits")
    assert modes == dict.fromkeys(both, len(HOSTS) * sets) | dict.fromkeys(gains, sets)


def test_a_gain_is_measured_against_the_jobs_alone_on_that_host(evaluation):
    for pair in pairs_of(evaluation):
        if pair.simpler.sharing.mode == "serial":
            assert pair.simpler.measured == pytest.approx(1.2)
            assert pair.simpler.predicted.p50 == pytest.approx(1)


def test_every_pair_is_scored_and_errors_in_common_make_intervals_narrower(evaluation):
    scores = pair_scores(evaluation)
    assert sum(row.pairs for row in scores) == len(pairs_of(evaluation))
    for row in scores:
        assert row.width < row.width_apart
        assert (row.right_untied is None) == (row.tied == 1)
        assert max(row.right, row.by_cost) <= row.pairs
