"""Work at the ends of epochs, from the profile to the total time of a plan."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.hardware.gpus import gpu
from advisor.plan.forecast import Mixes, forecast, over_time
from advisor.prediction.host import on_host
from advisor.prediction.mix_steps import paced_steps
from advisor.prediction.model import load_model
from advisor.prediction.other_batch import at_batch
from advisor.prediction.other_gpu import on_gpu
from advisor.prediction.predictor import Predictor
from advisor.sharing import Naive, Serial, parse_sharing
from advisor.simulation.results import parts
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job
from advisor.workload.profile import EpochEnd
from advisor.workload.store import model_path
from tests import shelf, synthetic
from tests.plan.stand_in import StandIn

H200 = gpu("h200-141gb")
END = EpochEnd(seconds=3.0, steps=100, loader_s=1.5, validation_s=1.0)

# Alone: 10 ms a step, 100 steps an epoch, then 3 s of which validation takes 1 s.
PLAIN = synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.01)
ENDING = replace(PLAIN, epoch_end=END)
OTHER = synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02)


def test_an_epoch_contains_its_end_and_a_step_does_not():
    assert (PLAIN.epoch_s, ENDING.epoch_s) == pytest.approx((1.0, 4.0))
    assert ENDING.step_s == PLAIN.step_s
    assert END.other_s == pytest.approx(0.5)


def test_ends_that_come_more_often_than_passes_count_as_often():
    often = replace(ENDING, epoch_end=replace(END, steps=25))
    assert often.epoch_s == pytest.approx(1.0 + 4 * 3.0)
    once = replace(ENDING, epoch_end=replace(END, steps=None))
    assert once.epoch_s == ENDING.epoch_s


def test_in_a_mix_validation_slows_as_steps_do_and_the_rest_of_an_end_does_not():
    shared, _ = StandIn().predict([ENDING, OTHER], Naive()).jobs
    assert shared.step_s.p50 == pytest.approx(0.03)
    assert shared.epoch_s.p50 == pytest.approx(100 * 0.03 + 2.0 + 1.0 * 3)
    assert shared.paced_s.p50 == pytest.approx(shared.epoch_s.p50 / 100)


@pytest.mark.parametrize("sharing", ["serial", "naive", "mps", "mps=40,60", "mig=3g.71gb,4g.71gb"])
def test_epochs_total_time_and_energy_of_the_model_agree(sharing):
    profiles = [
        replace(each, epoch_end=replace(END, steps=None))
        for each in list(shelf.PROFILES.values())[:2]
    ]
    predictor = Predictor(H200, load_model(model_path(None)))
    mix = predictor.predict(profiles, parse_sharing(sharing))
    for job, profile in zip(mix.jobs, profiles, strict=True):
        slowdown = job.step_s.p50 / profile.step_s
        steps = profile.workload.steps_per_epoch
        assert job.epoch_s.p50 == pytest.approx(steps * job.step_s.p50 + 2.0 + slowdown)
        watts = job.energy_epoch_j.p50 / job.epoch_s.p50
        assert watts == pytest.approx(job.energy_step_j.p50 / job.paced_s.p50)
        assert watts < mix.power_w.p95
    alone = forecast(Mixes([Job(profiles[0], epochs=5)], predictor), Serial())
    (job,) = alone.prediction.jobs
    assert alone.makespan_s == pytest.approx(5 * job.epoch_s.p50)
    assert alone.energy_j.p50 == pytest.approx(5 * job.energy_epoch_j.p50)


def test_a_plan_and_a_simulation_take_as_long_as_epochs_with_their_ends():
    jobs = [Job(ENDING, epochs=2), Job(OTHER)]
    serial = forecast(Mixes(jobs, StandIn()), Serial())
    assert serial.makespan_s == pytest.approx(8.0 + 2.0)
    assert (jobs[0].alone_s, serial.speedup_vs_serial) == (pytest.approx(8.0), 1)
    fleet = Fleet(gpu=H200.key, gpus=1, policy="first-come")
    arrivals = [Arrival(each) for each in jobs]
    simulation = over_time(arrivals, Naive(), lambda _: StandIn(), fleet).simulation
    together = forecast(Mixes(jobs, StandIn()), Naive())
    assert simulation.makespan_s.p50 == pytest.approx(together.makespan_s)
    stretches = list(parts(0, jobs[0], simulation.usage))
    assert [each.kind for each in stretches] == ["training", "training"]
    assert stretches[-1].end_s == pytest.approx(simulation.jobs[0].end_s.p50)


def test_measured_validation_is_not_counted_twice():
    alone_s = Job(ENDING).alone_s
    assert Job(ENDING, validation_s=1.0).alone_s == pytest.approx(alone_s)
    assert Job(ENDING, validation_s=1.5).alone_s == pytest.approx(alone_s + 0.5)
    assert Job(ENDING, checkpoint_s=2.0).alone_s == pytest.approx(alone_s + 2.0)


def test_elsewhere_validation_takes_longer_as_steps_do_and_the_rest_as_the_host_does():
    assert on_host(ENDING, 1.5).epoch_end.seconds == pytest.approx(1.5 * 3.0)
    full = replace(ENDING, host_s=0.005)
    assert on_host(full, 1.5).epoch_end.seconds == pytest.approx(1.5 * 2.0 + 1.0)
    there = on_gpu(ENDING, gpu("a100-80gb"))
    slower = there.step_s / ENDING.step_s
    assert slower > 1.1
    assert there.epoch_end.seconds == pytest.approx(2.0 + slower)
    assert there.epoch_end.validation_s == pytest.approx(slower)


def test_larger_batches_have_fewer_steps_between_two_ends():
    both = [
        replace(synthetic.profile(f"resnet26-cifar10-bs{batch}"), epoch_end=END)
        for batch in (100, 400)
    ]
    assert at_batch(both, 200).epoch_end.steps == 50


def test_searches_count_ends_as_a_profile_does():
    steps_s = np.array([[0.03, 0.05], [0.02, 0.04]])
    assert paced_steps([ENDING, OTHER], steps_s) == pytest.approx(
        np.array([[ENDING.paced_s(0.03), 0.05], [ENDING.paced_s(0.02), 0.04]])
    )
