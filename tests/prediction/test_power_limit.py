from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.candidates import CappedPredictor
from advisor.prediction.interval import LEVELS, Interval
from advisor.prediction.power_limit import held_to
from advisor.sharing import Mps, Naive, Serial
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

SHARINGS = st.sampled_from([Serial(), Naive(), Mps()])
positive = st.floats(1e-3, 1e3)
WIDE = st.tuples(positive, positive, positive).map(lambda ends: Interval(*sorted(ends)))
JOBS = st.lists(st.tuples(WIDE, WIDE), min_size=1, max_size=5)


def mix_of(jobs, sharing):
    """Jobs with these watts and seconds of a step, whose powers add up where they run at once."""
    answer = StandIn().predict([synthetic.profile()] * len(jobs), sharing)
    of_jobs = tuple(
        replace(
            job, step_s=step, energy_step_j=watts.times(step),
            energy_epoch_j=watts.times(step).scaled(100), energy_example_j=None,
        )
        for job, (watts, step) in zip(answer.jobs, jobs, strict=True)
    )  # fmt: skip
    watts = [watts for watts, _ in jobs]
    total = [sum(each.at(level) for each in watts) for level in LEVELS]
    part = len(jobs) if sharing.mode == "serial" else 1
    return replace(answer, jobs=of_jobs, power_w=Interval(*total).scaled(1 / part))


@given(JOBS, SHARINGS, st.floats(1, 5000))
def test_no_gpu_draws_more_than_it_may_nor_uses_more_energy(jobs, sharing, most_w):
    held = held_to(mix_of(jobs, sharing), most_w)
    assert held.power_w.p95 <= most_w
    used_w = [job.energy_step_j.p95 / job.step_s.p95 for job in held.jobs]
    together_w = max(used_w) if sharing.mode == "serial" else sum(used_w)
    assert together_w <= most_w * (1 + 1e-9)
    for job in held.jobs:
        assert job.energy_epoch_j.p95 == pytest.approx(100 * job.energy_step_j.p95)


@given(JOBS, SHARINGS)
def test_a_limit_that_nothing_reaches_changes_nothing(jobs, sharing):
    mix = mix_of(jobs, sharing)
    assert held_to(mix, None) == mix
    held = held_to(mix, 1e12)
    assert held.power_w == mix.power_w
    assert [job.energy_step_j for job in held.jobs] == [job.energy_step_j for job in mix.jobs]


def test_a_cap_holds_the_upper_end_of_the_power_too():
    pair = [synthetic.profile("resnet26-cifar10-bs128"), synthetic.profile("mlp-toy-bs128")]
    free = StandIn(wide=0.5).predict(pair, Mps())
    assert free.power_w.p95 == pytest.approx(450)
    assert CappedPredictor(StandIn(wide=0.5), H200, 300).predict(pair, Mps()).power_w.p95 <= 300
