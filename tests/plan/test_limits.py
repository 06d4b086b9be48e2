"""MPS limits of SMs and of memory that are worth a forecast."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.files.reading import MODEL_FILE
from advisor.hardware.gpus import gpu
from advisor.hardware.partition import limit_shares
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.limits import best_limits, limit_vectors
from advisor.plan.objectives import cost
from advisor.prediction.caching_predictor import in_one_order
from advisor.prediction.memory import memory_caps
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps
from advisor.workload.job import Job
from tests import handed, shelf, synthetic
from tests.fitted import with_surrogate
from tests.plan.fleet_twins import planned
from tests.plan.stand_in import H200, StandIn, ranked

GRID = (14.0, 28.0, 43.0, 57.0, 71.0, 86.0, 100.0)
JOBS = [Job(each) for each in list(shelf.PROFILES.values())[:3]]
PROFILES = st.lists(
    st.builds(synthetic.profile, host_s=st.floats(1e-3, 1), gpu_s=st.floats(1e-4, 1)),
    min_size=2,
    max_size=8,
)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    model = load_model(folder / "models" / MODEL_FILE)
    model = with_surrogate(model, [job.profile for job in JOBS], H200, lessons=250)
    return in_one_order(Predictor(gpu(shelf.GPU), model))


@pytest.mark.parametrize("objective", ["makespan", "throughput", "mean-completion"])
@pytest.mark.parametrize("jobs", [JOBS[:2], [JOBS[0], JOBS[0]]])
def test_hardly_any_limits_of_a_grid_are_better_than_the_plans_shown(predictor, objective, jobs):
    mixes = Mixes(jobs, predictor)
    tried = [forecast(mixes, Mps(each)) for each in product(GRID, repeat=2)]
    advised = ranked(jobs, H200, predictor, objective)
    shown = min(cost(plan, objective).p50 for plan in advised.plans)
    assert shown <= 1.03 * min(cost(each, objective).p50 for each in tried)


@pytest.mark.parametrize("degree", [2, 4, 6, 12])
def test_many_vectors_are_compared_and_a_few_that_differ_are_left(predictor, degree):
    sharings, compared = best_limits(Mixes((JOBS * 4)[:degree], predictor), "makespan")
    assert 1 <= len(sharings) <= 5
    assert np.isfinite(compared)
    assert all(len(each.limits) == degree for each in sharings)
    shares = {tuple(limit_shares(each.limits, H200.sms)) for each in sharings}
    assert len(shares) == len(sharings)


@given(PROFILES)
def test_every_job_has_a_limit_that_mps_takes_and_no_vector_is_tried_twice(jobs):
    vectors = limit_vectors(jobs)
    assert len(set(vectors)) == len(vectors) <= 10
    for vector in vectors:
        assert len(vector.limits) == len(jobs)
        assert all(1 <= limit <= 100 and limit == int(limit) for limit in vector.limits)
    equal = [each.limits for each in vectors if len(set(each.limits)) == 1]
    assert all(sum(limits) >= 90 for limits in equal), "a tenth of the GPU is left to nobody"


def test_a_job_that_asks_for_more_of_the_sms_gets_the_higher_limit():
    greedy, modest = (synthetic.profile(host_s=0.01, gpu_s=gpu_s) for gpu_s in (0.1, 0.001))
    unequal = [e.limits for e in limit_vectors([greedy, modest]) if len(set(e.limits)) > 1]
    assert unequal
    assert all(limits[0] > limits[1] for limits in unequal)


class LimitedWait(StandIn):
    """Jobs take twice as long together, except a job whose partner has a limit of 14 %."""

    def _steps(self, profiles, sharing):
        if sharing.limits == (100.0, 14.0):
            return [profiles[0].step_s, 2 * profiles[1].step_s]
        return [each.step_s * (1 + (sharing.mode != "serial")) for each in profiles]


def test_a_protected_job_is_slowed_no_more_than_it_may_be_by_limits_of_the_others():
    short = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002), protect=0.1)
    long = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
    advised = ranked([short, long], H200, LimitedWait(H200), "throughput")
    assert all(plan.prediction.jobs[0].slowdown <= 1.1 for plan in advised.plans)
    assert "serial" in {plan.sharing.mode for plan in advised.plans}
    assert (100.0, 14.0) in {plan.sharing.limits for plan in advised.plans}
    assert any("protected" in each.why for each in advised.left_out)
    with pytest.raises(InvalidInput, match="protected"):
        planned([short], StandIn(H200), H200, gpus=2)
    with pytest.raises(InvalidInput, match="protect"):
        replace(short, protect=-0.1)


@pytest.mark.parametrize(
    ("sharing", "held_mib", "least_mib", "capped"),
    [
        ("mps", 4_000, 3_000, set()),  # everything fits
        ("mps", 90_000, 60_000, {1, 2}),
        ("mps", 90_000, 80_000, set()),  # the least does not fit
        ("serial", 90_000, 60_000, set()),
        ("naive", 90_000, 60_000, set()),
        ("mig=4g.71gb[1]+3g.71gb[2,3]/mps", 40_000, 30_000, {2, 3}),
    ],
)
def test_memory_is_capped_where_it_must_be_and_can_be(sharing, held_mib, least_mib, capped):
    jobs = handed.JOBS[: 3 if "mig" in sharing else 2]
    mix = handed.predicted(sharing, jobs, held_mib=held_mib, least_mib=least_mib)
    assert memory_caps(H200, mix).keys() == capped


@given(st.floats(1, 200_000), st.floats(1, 200_000))
def test_caps_are_between_least_and_held_and_fit_together(one, other):
    least, held = sorted((one, other))
    mix = handed.predicted("mps", handed.JOBS[:2], held_mib=held, least_mib=least)
    found = memory_caps(H200, mix)
    assert all(int(least) <= cap <= held for cap in found.values())
    assert sum(found.values()) <= H200.usable_mib
