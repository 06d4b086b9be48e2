"""Predictions for a machine that was calibrated."""

from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.calibrated_predictor import calibrated_predictor, slowdown_of
from advisor.prediction.host_transfer import on_host
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps, Naive, Serial
from tests import shelf, synthetic
from tests.fitted import fit
from tests.measure.calibrate.recorded import calibration

HOST_BOUND = replace(synthetic.profile(host_s=0.02, gpu_s=0.004), host_check_s=1e-3)
GPU_BOUND = replace(
    synthetic.profile("bert-base-finetune-bs16", host_s=0.004, gpu_s=0.02), host_check_s=1e-3
)
UNKNOWN = replace(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.02, gpu_s=0.004), host_check_s=None
)


@pytest.fixture(scope="module")
def plain():
    jobs = [HOST_BOUND, GPU_BOUND]
    runs = [synthetic.run(jobs, "mps", 1.3, f"r{number}") for number in range(5)]
    return Predictor(
        gpu("h200-141gb"), fit({each.name: each for each in jobs}, runs, gpu(shelf.GPU))
    )


def test_a_check_in_passing_counts_a_little_over_half():
    known = calibration(2e-3, contexts=None)
    brief = replace(known, in_passing=True)
    whole, part = (slowdown_of(HOST_BOUND, each, 1) for each in (known, brief))
    assert part == pytest.approx(whole**0.57)
    assert part != 1


def test_a_host_bound_job_takes_most_of_what_its_host_check_takes_longer(plain):
    there = calibrated_predictor(plain, calibration(2e-3, contexts=None))
    before, after = (each.predict([HOST_BOUND], Serial()).jobs[0] for each in (plain, there))
    assert after.step_s.p50 == pytest.approx(2**0.73 * before.step_s.p50, rel=0.01)


def test_a_calibrated_host_makes_a_step_that_follows_it_surer(plain):
    there = calibrated_predictor(plain, calibration(1e-3, contexts=None))
    unsure, sure = (each.predict([HOST_BOUND], Serial()).jobs[0].step_s for each in (plain, there))
    assert sure.p50 == unsure.p50
    assert sure.p95 - sure.p05 < unsure.p95 - unsure.p05


def test_a_gpu_bound_job_does_not_care_for_its_host(plain):
    there = calibrated_predictor(plain, calibration(2e-3, contexts=None))
    before, after = (each.predict([GPU_BOUND], Serial()).jobs[0] for each in (plain, there))
    assert after.step_s.p50 == pytest.approx(before.step_s.p50)


def test_jobs_that_share_are_predicted_with_as_many_cores_busy(plain):
    there = calibrated_predictor(plain, calibration(contexts=None))
    eight = [HOST_BOUND] * 8
    slowed = plain.on_known_cores().predict([on_host(HOST_BOUND, 1.1**0.73)] * 8, Naive())
    assert there.predict(eight, Naive()).jobs == pytest.approx(slowed.jobs)


def test_a_profile_that_does_not_know_its_host_stays_as_it_is(plain):
    there = calibrated_predictor(plain, calibration(5e-3, contexts=None))
    known = plain.on_known_cores()
    assert there.predict([UNKNOWN] * 2, Mps()) == known.predict([UNKNOWN] * 2, Mps())


def test_a_job_taken_to_this_host_is_not_taken_there_twice(plain):
    there = calibrated_predictor(plain, calibration(2e-3, contexts=None))
    moved = on_host(HOST_BOUND, 2.0)  # its check takes 2 ms then, as here
    assert (
        there.predict([moved], Serial()).jobs[0].step_s
        == plain.on_known_cores().predict([moved], Serial()).jobs[0].step_s
    )


def test_driver_server_and_contexts_of_this_machine_replace_those_of_the_model(plain):
    there = calibrated_predictor(plain, calibration())
    pair = [UNKNOWN, UNKNOWN]
    whole_mib = gpu("h200-141gb").memory_mib
    assert there.predict(pair, Naive()).memory_capacity_mib == whole_mib - 700
    assert there.predict(pair, Mps()).memory_capacity_mib == whole_mib - 700 - 100
    assert there.predictor.model.of(there.predictor.gpu).context.usual_mib == 742
    assert there.predictor.model.of(there.predictor.gpu).context.per_sm_mib == pytest.approx(
        4.4, abs=0.01
    )
    silent = calibration(
        contexts=replace(calibration().contexts, plain_mib=None, mps_mib=None, mps_server_mib=None)
    )
    kept = calibrated_predictor(plain, silent).predictor
    assert kept.model.of(kept.gpu) == plain.model.of(plain.gpu)
