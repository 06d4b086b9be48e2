"""What the user's own runs of a job say of its pace."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.learn.fit import own_paces
from advisor.prediction.caching_predictor import CachingPredictor, at_own_pace
from advisor.sharing import Mps, Serial
from tests import synthetic
from tests.plan.stand_in import Apart

HOST_BOUND = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)
GPU_BOUND = synthetic.profile("bert-base-finetune-bs16", host_s=0.004, gpu_s=0.020)
PROFILES = {each.name: each for each in (HOST_BOUND, GPU_BOUND)}


def learnt(*runs):
    return own_paces(PROFILES, runs, Apart())


def runs_of(*slowdowns, sharing="mps"):
    return [
        synthetic.run([HOST_BOUND, GPU_BOUND], sharing, slowdown=each, run_id=f"r{number}")
        for number, each in enumerate(slowdowns)
    ]


def test_a_job_whose_host_was_faster_in_every_run_is_taken_to_be_so():
    pace = learnt(*runs_of(*[0.7] * 9))[HOST_BOUND.name]
    assert pace.runs == 9
    assert pace.slowdown == pytest.approx(0.7**0.9)
    found = at_own_pace(HOST_BOUND, {HOST_BOUND.name: pace})
    assert found.step_s == pytest.approx(HOST_BOUND.step_s * 0.7**0.9)
    assert found.gpu_s == HOST_BOUND.gpu_s


def test_a_job_that_the_gpu_holds_back_tells_nothing_of_its_host():
    pace = learnt(*runs_of(2.0, 2.0))[GPU_BOUND.name]
    assert (pace.slowdown, pace.runs) == (1.0, 0)
    assert at_own_pace(GPU_BOUND, {GPU_BOUND.name: pace}) is GPU_BOUND


def test_runs_that_failed_or_were_on_instances_or_of_unknown_jobs_are_left_out():
    (good,) = runs_of(1.44)
    dead = replace(good.tenants[0], outcome="failed", detail="killed", windows=())
    failed = replace(good, tenants=(dead, good.tenants[1]))
    on_mig = replace(good, sharing="mig=3g.71gb,4g.71gb")
    stranger = synthetic.run([HOST_BOUND, synthetic.profile("mlp-toy-bs128")])
    assert learnt(failed, on_mig, stranger) == {}


def test_a_profile_that_was_made_since_is_left_as_it_is():
    paces = learnt(*runs_of(1.44))
    later = replace(HOST_BOUND.provenance, date="2027-01-01T00:00:00+00:00")
    made_since = replace(HOST_BOUND, provenance=later)
    assert at_own_pace(made_since, paces) is made_since
    assert at_own_pace(GPU_BOUND, paces) is GPU_BOUND
    assert at_own_pace(HOST_BOUND, paces).provenance == HOST_BOUND.provenance


def test_predictions_are_of_the_job_at_that_pace_and_of_the_others_as_they_are():
    paced = CachingPredictor(Apart(), paces=learnt(*runs_of(1.44)))
    for sharing in (Serial(), Mps()):
        ours, other = paced.predict([HOST_BOUND, GPU_BOUND], sharing).jobs
        assert ours.step_s.p50 == pytest.approx(1.2 * HOST_BOUND.step_s)
        beside = 1.44**0.25 if sharing.under_mps else 1.0
        assert other.step_s.p50 == pytest.approx(beside * GPU_BOUND.step_s)
    assert paced.surrogate([HOST_BOUND]) is None


def test_mps_with_limits_and_without_are_learnt_apart():
    runs = [*runs_of(1.5), *runs_of(0.9, sharing="mps=50,50")]
    found = {mode: each.factor**4 for mode, each in learnt(*runs)[GPU_BOUND.name].beside.items()}
    assert found == pytest.approx({"mps": 1.5, "mps-limits": 0.9})


@given(slowdowns=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=6))
def test_the_pace_lies_between_the_profile_and_what_the_runs_showed(slowdowns):
    found = learnt(*runs_of(*slowdowns))
    step = found[GPU_BOUND.name].beside["mps"]
    for factor in (found[HOST_BOUND.name].slowdown, step.factor):
        assert min(1.0, *slowdowns) - 1e-9 <= factor <= max(1.0, *slowdowns) + 1e-9
