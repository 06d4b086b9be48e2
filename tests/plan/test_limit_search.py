from itertools import product

import numpy as np
import pytest

from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import limit_shares
from advisor.plan.forecast import Mixes
from advisor.plan.ranking import ranked
from advisor.plan.search.limit_search import (
    GRIDS,
    MOST_COMBINED,
    best_limits,
    estimated_limits,
    kept,
)
from advisor.plan.search.limit_tuning import different, limit_vectors
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps
from advisor.workload.files import MODEL_FILE
from advisor.workload.job import Job
from tests import shelf, synthetic
from tests.fitted import with_surrogate
from tests.plan.stand_in import StandIn

H200 = gpu(shelf.GPU)
JOBS = [Job(each) for each in list(shelf.PROFILES.values())[:3]]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    model = load_model(folder / "models" / MODEL_FILE)
    return Predictor(H200, with_surrogate(model, [job.profile for job in JOBS], H200, lessons=250))


def throughput(predictor, jobs, sharing):
    profiles = [job.profile for job in jobs]
    steps = step_intervals(profiles, sharing, H200, predictor.model)
    return sum(job.step_s / step.p50 for job, step in zip(profiles, steps, strict=True))


@pytest.mark.parametrize("jobs", [JOBS[:2], JOBS[1:], [JOBS[0], JOBS[0]]])
def test_little_throughput_is_given_away_by_not_replaying_every_vector(predictor, jobs):
    found = best_limits(Mixes(jobs, predictor), "throughput")
    vectors = [Mps(tuple(map(float, each))) for each in product(GRIDS[0], repeat=2)]
    best = max(throughput(predictor, jobs, each) for each in vectors)
    chosen = max(throughput(predictor, jobs, each) for each in found.sharings)
    assert chosen >= 0.98 * best


@pytest.mark.parametrize("degree", [2, 3, 4, 6])
def test_hundreds_of_vectors_are_compared_and_a_few_are_left(predictor, degree):
    found = best_limits(Mixes((JOBS * 2)[:degree], predictor), "makespan")
    assert 1 <= len(found.sharings) <= 5
    assert 50 < found.compared < 2 * MOST_COMBINED
    assert all(len(each.limits) == degree for each in found.sharings)


def test_copies_that_swap_their_limits_are_compared_once(predictor):
    apart = best_limits(Mixes(JOBS[:2], predictor), "throughput").compared
    copies = best_limits(Mixes([JOBS[0]] * 2, predictor), "throughput").compared
    assert copies < 0.8 * apart


@pytest.mark.parametrize("objective", ["makespan", "throughput", "energy"])
def test_every_objective_gets_limits_no_worse_than_the_usual_ones(predictor, objective):
    class NoSearch(Predictor):
        def surrogate(self, profiles):
            """It searches nothing."""

    usual = NoSearch(predictor.gpu, predictor.model)
    searched = ranked(JOBS[:2], H200, predictor, objective)
    unsearched = ranked(JOBS[:2], H200, usual, objective)
    assert searched.considered > unsearched.considered
    if objective == "throughput":
        best = max(each.prediction.weighted_speedup for each in searched.plans)
        assert best >= max(each.prediction.weighted_speedup for each in unsearched.plans) - 1e-9
    if objective == "makespan":
        shortest = min(each.makespan_s for each in searched.plans)
        assert shortest <= min(each.makespan_s for each in unsearched.plans) * 1.01


def test_without_a_rough_predictor_the_usual_limits_are_tried():
    found = best_limits(Mixes(JOBS, StandIn()), "makespan")
    assert found.sharings == tuple(limit_vectors([job.profile for job in JOBS]))
    assert found.compared == len(found.sharings)


def test_limits_are_not_searched_where_the_jobs_do_not_fit(predictor):
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
    found = best_limits(Mixes([big, big], predictor), "makespan")
    assert found.compared == len(limit_vectors([big.profile] * 2))


def test_more_jobs_than_can_be_combined_are_searched_one_limit_at_a_time(predictor):
    found = best_limits(Mixes(JOBS * 5, predictor), "throughput")
    assert np.isfinite(found.compared)
    assert 1 <= len(found.sharings) <= 4  # three by replay, and the one estimated best


@pytest.mark.parametrize("jobs", [JOBS, [JOBS[0]] * 4])
def test_no_two_limits_that_leave_the_same_sms_are_forecast(predictor, jobs):
    found = best_limits(Mixes(jobs, predictor), "makespan").sharings
    assert len({tuple(limit_shares(each.limits, H200.sms)) for each in found}) == len(found)


def test_limits_of_nothing_are_no_plan_beside_mps_itself():
    limits = [Mps((100.0, 100.0)), Mps((100.0, 86.0))]
    assert different(limits, H200) == [Mps((100.0, 86.0))]


def test_limits_that_are_chosen_by_a_short_replay_are_nearly_as_good_as_by_a_long_one(predictor):
    mixes = Mixes(JOBS, predictor)
    vectors = [Mps(tuple(map(float, each))) for each in product((14, 28, 57, 100), repeat=3)]
    brief_s = mixes.surrogate().replayed(vectors)
    alone_s = np.array([job.profile.step_s for job in JOBS])
    ordered = [vectors[at] for at in np.argsort(-(alone_s / brief_s).sum(axis=1))]
    chosen = kept(ordered, [job.name for job in JOBS])
    exact = {each: throughput(predictor, JOBS, each) for each in vectors}
    assert max(exact[each] for each in chosen) >= 0.98 * max(exact.values())


def test_the_best_limits_are_predicted_and_the_best_equal_ones_where_time_is_left():
    names = [f"job-{at}" for at in range(6)]
    apart, other = (
        Mps((14.0, 28.0, 43.0, 57.0, 71.0, 86.0)),
        Mps((14.0, 28.0, 43.0, 57.0, 71.0, 100.0)),
    )
    same = Mps((43.0,) * 6)
    assert kept([apart, other, same], names) == [apart, same]
    assert kept([same, apart, other], names) == [same, apart]
    many = [f"job-{at}" for at in range(12)]
    assert kept([Mps(apart.limits * 2), Mps(same.limits * 2)], many) == [Mps(apart.limits * 2)]


@pytest.mark.parametrize("degree", [2, 6])
def test_by_the_surrogate_alone_one_vector_is_left(predictor, degree):
    found = estimated_limits(Mixes((JOBS * 2)[:degree], predictor), "makespan")
    (one,) = found.sharings
    assert len(one.limits) == degree
    assert found.compared > 50


def test_of_many_jobs_what_the_rough_answer_shows_is_compared_by_the_whole_search_too(predictor):
    mixes = Mixes(JOBS * 2, predictor)
    (rough,) = estimated_limits(mixes, "makespan").sharings
    compared = [
        limit_shares(each.limits, H200.sms) for each in best_limits(mixes, "makespan").sharings
    ]
    assert limit_shares(rough.limits, H200.sms) in compared


def test_without_a_surrogate_no_limits_are_guessed():
    assert estimated_limits(Mixes(JOBS, StandIn(H200)), "makespan").sharings == ()
