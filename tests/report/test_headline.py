from dataclasses import replace

import pytest

from advisor.plan.ranking import ranked
from advisor.report.headline import answer, gain
from advisor.sharing import Serial
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


class Hurting(StandIn):
    """Sharing costs more than it gives."""

    def _steps(self, profiles, sharing):
        steps = super()._steps(profiles, sharing)
        return steps if isinstance(sharing, Serial) else [3 * each for each in steps]


def advised(jobs, predictor=None, objective="makespan"):
    return ranked(jobs, H200, predictor or StandIn(), objective)


def test_the_sentence_says_what_to_do_how_long_and_how_much_is_gained():
    sentence = answer(advised([GPU_BOUND] * 3, StandIn(wide=0.01)))
    assert sentence.startswith("Run all 3 at once under MPS: all done in ")
    assert "1.25x (1.24-1.26) as fast as one after another." in sentence


def test_two_are_both():
    assert answer(advised([GPU_BOUND] * 2)).startswith("Run both at once under MPS: ")


def test_serial_is_advised_in_so_many_words():
    sentence = answer(advised([GPU_BOUND] * 3, Hurting(wide=0.01)))
    assert sentence.startswith("Don't share: run the 3 jobs one after another, ")


def test_one_job_has_nothing_to_share():
    assert answer(advised([GPU_BOUND])).startswith("There is nothing to share: one job, done in ")


def test_plans_that_are_equal_within_our_error_are_named():
    sentence = answer(advised([GPU_BOUND] * 2, StandIn(wide=0.5)))
    assert "Equal within our error: 2 (" in sentence
    assert " more; 1 is first " in sentence


def test_a_fallback_is_said():
    endless = replace(GPU_BOUND.profile.workload, examples_per_epoch=None)
    unknown = Job(replace(GPU_BOUND.profile, workload=endless))
    sentence = answer(advised([unknown, HOST_BOUND]))
    assert "Ranked by throughput: makespan needs to know how long an epoch" in sentence
    assert "the throughput of one after another" in sentence


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("throughput", "the throughput of one after another"),
        ("energy", "as frugal as one after another"),
        ("fairness", "the job that fares worst runs"),
        ("mean-completion", "on average, "),
        ("deadlines", "every deadline is kept: the tightest job takes "),
    ],
)
def test_every_objective_has_its_own_outcome(objective, said):
    due = replace(HOST_BOUND, deadline_s=1e6)
    assert said in answer(advised([HOST_BOUND, due], objective=objective))


def test_the_gain_of_serial_over_itself_is_one_and_certain():
    found = advised([GPU_BOUND] * 2)
    certain = gain(found, found.serial)
    assert (certain.p05, certain.p50, certain.p95) == (1, 1, 1)


def test_the_gain_of_a_plan_is_its_speedup_with_bounds():
    found = advised([GPU_BOUND] * 2, StandIn(wide=0.1))
    better = gain(found, found.best)
    assert better.p50 == pytest.approx(found.best.speedup_vs_serial)
    assert better.p05 < better.p50 < better.p95
