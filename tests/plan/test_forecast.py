from dataclasses import replace
from typing import ClassVar

import pytest

from advisor.plan.forecast import MixCache, Mixes, forecast
from advisor.plan.objectives import cost, rankable_by, tied
from advisor.plan.ranking import ranked
from advisor.prediction.interval import Interval
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

# Alone: 10 ms a step and 100 steps, or 20 ms and 100.
SHORT = synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.01)
LONG = synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02)
BOTH = [Job(SHORT), Job(LONG)]


def seen(jobs, sharing, **how):
    return forecast(Mixes(jobs, StandIn(**how)), parse_sharing(sharing))


def test_one_after_the_other_takes_the_sum_and_gains_nothing():
    serial = seen(BOTH, "serial")
    assert serial.makespan_s == pytest.approx(1 + 2)
    assert serial.speedup_vs_serial == pytest.approx(1)
    assert serial.prediction.weighted_speedup == 1


def test_a_job_that_is_left_alone_speeds_up_under_naive_sharing():
    # 100 steps of 30 ms together; then 0 left of the short one and of the long one alike.
    assert seen(BOTH, "naive").makespan_s == pytest.approx(3)
    # The long job has twice the steps: the second hundred run alone at 20 ms.
    twice = [Job(SHORT), Job(LONG, epochs=2)]
    assert seen(twice, "naive").makespan_s == pytest.approx(3 + 2)


def test_each_job_ends_when_its_turn_is_over():
    serial = seen(BOTH, "serial")
    assert [end.p50 for end in serial.ends_s] == pytest.approx([1, 3])
    assert cost(serial, "mean-completion").p50 == pytest.approx(2)


def test_the_tightest_deadline_is_what_counts():
    due = [Job(SHORT, deadline_s=2), Job(LONG, deadline_s=2.5)]
    assert cost(seen(due, "serial"), "deadlines").p50 == pytest.approx(3 / 2.5)
    assert cost(seen(due[::-1], "serial"), "deadlines").p50 == pytest.approx(3 / 2)


def test_without_deadlines_plans_are_ranked_by_their_makespan():
    serial = seen(BOTH, "serial")
    assert cost(serial, "deadlines") is None
    assert rankable_by([serial], "deadlines")[0] == "makespan"


def test_a_limit_goes_on_to_hold_when_the_mates_have_left():
    twice = [Job(SHORT), Job(LONG, epochs=2)]
    assert seen(twice, "mps=100,50").makespan_s == pytest.approx(200 * 0.04)


def test_mates_on_instances_of_their_own_do_not_speed_up():
    alone = 0.02 * 132 / 60
    longer = [Job(SHORT), Job(LONG, epochs=5)]
    assert seen(longer, "mig=3g.71gb,3g.71gb").makespan_s == pytest.approx(500 * alone)


def test_validation_is_part_of_the_makespan():
    assert seen([Job(SHORT, validation_s=7)], "serial").makespan_s == pytest.approx(1 + 7)


def test_energy_follows_the_power_of_whoever_still_runs():
    twice = [Job(SHORT), Job(LONG, epochs=2)]
    energy = seen(twice, "naive").energy_j
    assert energy.p50 == pytest.approx(3 * 300 + 2 * 200)
    assert energy.p05 == pytest.approx(0.9 * 0.9 * energy.p50)


def test_the_makespan_interval_takes_all_errors_to_go_the_same_way():
    makespan = seen(BOTH, "naive").makespan_interval_s
    assert (makespan.p05, makespan.p95) == (pytest.approx(2.7), pytest.approx(3.3))


def test_without_the_length_of_an_epoch_there_is_no_makespan():
    endless = replace(SHORT, workload=replace(SHORT.workload, examples_per_epoch=None))
    lost = seen([Job(endless), Job(LONG)], "naive")
    assert lost.makespan_s is lost.energy_j is lost.speedup_vs_serial is None
    assert rankable_by([lost], "energy")[0] == "throughput"
    assert rankable_by([lost], "throughput") == ("throughput", None)


def test_without_power_energy_falls_back_to_makespan_and_says_so():
    dark = replace(SHORT, power_w=None)
    ranked_by, note = rankable_by([seen([Job(dark), Job(LONG)], "naive")], "energy")
    assert ranked_by == "makespan"
    assert "power" in note


def test_every_mix_is_asked_for_once_whatever_the_number_of_copies():
    predictor = StandIn()
    mixes = Mixes([Job(SHORT)] * 5 + [Job(LONG)] * 2, predictor)
    forecast(mixes, Naive())
    forecast(mixes, Naive())
    # All; the five that are left, or the two that are; and each alone in turn, for the gain.
    assert predictor.asked <= 4


def test_throughput_of_serial_is_the_unit_of_its_cost():
    serial = forecast(Mixes(BOTH, StandIn()), Serial())
    assert cost(serial, "throughput") == Interval(1, 1, 1)


def test_throughput_is_worth_the_sum_of_speeds():
    mps = forecast(Mixes(BOTH, StandIn()), Mps())
    assert cost(mps, "throughput").p50 == pytest.approx(1 / mps.prediction.weighted_speedup)
    assert cost(mps, "throughput").p05 < cost(mps, "throughput").p50


def test_costs_are_tied_where_one_median_lies_in_the_other_interval():
    assert tied(Interval(9, 10, 11), Interval(10.9, 12, 13)) is False
    assert tied(Interval(9, 10, 12.5), Interval(11.9, 12, 12.1)) is True


class Counted(StandIn):
    """Notes what it is asked."""

    noted: ClassVar = []

    def predict(self, profiles, sharing):
        self.noted.append((tuple(each.name for each in profiles), str(sharing)))
        return super().predict(profiles, sharing)


def test_a_question_that_changes_another_one_asks_only_for_mixes_that_are_new():
    known, asked = MixCache(Counted()), Counted.noted
    assert ranked(BOTH, H200, known, "makespan") == ranked(BOTH, H200, StandIn(), "makespan")
    longer = [replace(BOTH[0], epochs=2), BOTH[1]]
    assert ranked(longer, H200, known, "makespan") == ranked(longer, H200, StandIn(), "makespan")
    assert ranked(BOTH, H200, known, "energy") == ranked(BOTH, H200, StandIn(), "energy")
    assert len(set(asked)) == len(asked) > 0
