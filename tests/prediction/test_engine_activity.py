"""Engine activity of a GPU that is cut up: instances count for their compute slices."""

from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.workload.store import model_path
from tests import synthetic

A100 = gpu("a100-40gb")


@pytest.fixture(scope="module")
def predictor():
    return Predictor(A100, load_model(model_path()))


def job(host_s, gpu_s):
    return replace(synthetic.profile(host_s=host_s, gpu_s=gpu_s), gpu=A100.key)


BUSY, IDLE = job(0.001, 0.02), job(0.02, 0.0005)


def gract(predictor, jobs, sharing):
    return predictor.predict(jobs, parse_sharing(sharing)).gract


def test_a_job_that_fills_its_instance_counts_for_the_instances_slices(predictor):
    for name, slices in (("1g.5gb", 1), ("2g.10gb", 2), ("3g.20gb", 3), ("7g.40gb", 7)):
        assert gract(predictor, [BUSY], f"mig={name}") == pytest.approx(slices / 7, rel=0.15)


def test_full_instances_add_up_to_the_part_of_the_gpu_that_they_are(predictor):
    assert gract(predictor, [BUSY] * 2, "mig=3g.20gb,3g.20gb") == pytest.approx(6 / 7, rel=0.15)
    assert gract(predictor, [BUSY] * 7, "mig=" + ",".join(["1g.5gb"] * 7)) == pytest.approx(
        1.0, rel=0.15
    )


def test_an_instance_whose_job_waits_for_its_host_is_hardly_active(predictor):
    alone = IDLE.counters.gract
    assert alone < gract(predictor, [IDLE], "mig=1g.5gb") * 7 < 20 * alone
    assert gract(predictor, [IDLE], "mig=1g.5gb") < 1 / 7


def test_jobs_of_one_instance_keep_it_active_together(predictor):
    shared = gract(predictor, [BUSY, IDLE], "mig=4g.20gb[1,2]/mps")
    assert shared == pytest.approx(4 / 7, rel=0.15)


def test_a_compute_instance_counts_for_its_own_slices(predictor):
    both = gract(predictor, [BUSY, IDLE], "mig=7g.40gb/ci=3c[1]+4c[2]")
    idle = gract(predictor, [IDLE], "mig=4g.20gb")
    assert 3 / 7 * 0.85 < both < 3 / 7 + 2 * idle


def test_without_counters_nothing_is_said(predictor):
    assert gract(predictor, [replace(BUSY, counters=None)], "mig=1g.5gb") is None


def smact(predictor, jobs, sharing):
    return predictor.predict(jobs, parse_sharing(sharing)).smact


def test_the_sms_of_an_instance_are_all_that_a_job_on_it_can_keep_busy(predictor):
    full = replace(BUSY, counters=replace(BUSY.counters, sm_active=1.0))
    for name, sms in (("1g.5gb", 14), ("2g.10gb", 28), ("4g.20gb", 56), ("7g.40gb", 98)):
        found = smact(predictor, [full], f"mig={name}")
        assert 0.6 * sms / A100.sms < found <= sms / A100.sms * (1 + 1e-9)


def test_a_part_of_the_sms_with_all_bandwidth_does_its_work_in_less_of_their_time(predictor):
    job = predictor.predict([BUSY, IDLE], parse_sharing("mig=7g.40gb/ci=4c[1]+3c[2]"))
    asked = BUSY.counters.sm_active / job.jobs[0].slowdown
    assert 0.8 * asked < job.smact < 0.99 * asked


def test_the_whole_gpus_instance_keeps_about_as_many_sms_busy_as_the_gpu(predictor):
    found = smact(predictor, [BUSY], "mig=7g.40gb") / smact(predictor, [BUSY], "serial")
    assert 0.9 < found <= 1


def test_without_gpm_counters_no_activity_of_sms_is_told(predictor):
    dark = replace(BUSY, counters=replace(BUSY.counters, sm_active=None))
    assert smact(predictor, [dark], "mig=1g.5gb") is None
