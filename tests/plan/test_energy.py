from dataclasses import replace

import pytest

from advisor.launch.commands import with_commands
from advisor.plan.candidates import CappedPredictor
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import cost
from advisor.plan.ranking import ranked
from advisor.prediction.interval import Interval
from advisor.report.answer_text import answer
from advisor.sharing import Mps, Naive, Serial
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SHORT = synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.004)
LONG = synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02)
BOTH = [Job(SHORT), Job(LONG)]
ENDLESS = [
    Job(replace(each, workload=replace(each.workload, examples_per_epoch=None)))
    for each in (SHORT, LONG)
]


class Metered(StandIn):
    """Each job pays an equal part of the GPU's power while it runs."""

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        one = isinstance(sharing, Serial)
        watts = 200.0 if one else mix.power_w.p50 / len(profiles)
        return replace(
            mix, jobs=tuple(map(self._paid, mix.jobs, profiles, [watts] * len(mix.jobs)))
        )

    def _paid(self, job, profile, watts):
        step = job.step_s.scaled(watts)
        steps = profile.workload.steps_per_epoch
        return replace(
            job,
            energy_step_j=step,
            energy_epoch_j=None if steps is None else step.scaled(steps),
            energy_example_j=step.scaled(1 / profile.workload.batch),
        )


def test_the_most_frugal_plan_comes_first():
    advised = ranked(BOTH, H200, Metered(wide=0.01), "energy")
    costs = [cost(plan, "energy").p50 for plan in advised.plans]
    assert costs[0] == min(costs) < cost(advised.serial, "energy").p50


def test_jobs_whose_lengths_are_not_known_are_ranked_by_throughput():
    advised = ranked(ENDLESS, H200, Metered(), "energy")
    assert advised.ranked_by == "throughput"
    assert "every job's length" in advised.note


def test_without_any_energy_the_ranking_says_what_it_goes_by_instead():
    advised = ranked(BOTH, H200, StandIn(), "energy")
    assert (advised.ranked_by, "power" in advised.note) == ("makespan", True)


def test_every_plan_under_a_cap_is_compared_with_serial_under_the_same_cap():
    advised = with_commands(ranked(BOTH, H200, CappedPredictor(Metered(), H200, 240), "throughput"))
    assert {plan.prediction.power_cap_w for plan in advised.plans} == {240}
    assert "power cap of 240 W: not measured on this GPU: translated from V100 and A40" in answer(
        advised
    )
    lines = "\n".join(advised.best.commands)
    assert 'sudo nvidia-smi -i "$GPU" --power-limit=240 || exit' in lines
    assert 'sudo nvidia-smi -i "$GPU" --power-limit="$cap_was_w"' in lines, "which was there before"
    serial = cost(advised.serial, "throughput")
    assert serial.p50 == pytest.approx(1 / advised.serial.prediction.weighted_speedup)
    assert serial.p50 > 1


def test_a_cap_saves_energy_for_time():
    free, capped = (forecast(Mixes(BOTH, each), Naive())
                    for each in (Metered(), CappedPredictor(Metered(), H200, 250)))  # fmt: skip
    assert capped.makespan_s > free.makespan_s
    assert capped.energy_j.p50 < free.energy_j.p50
    assert cost(forecast(Mixes(BOTH, Metered()), Mps()), "throughput") != Interval(1, 1, 1)
