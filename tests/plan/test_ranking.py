from dataclasses import replace
from itertools import permutations

import pytest

from advisor.errors import NothingFits
from advisor.hardware.catalogue import gpu
from advisor.launch.commands import with_commands
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost
from advisor.plan.precedence import CLOSE, MOST_OF_A_KIND, plans_to_show, starved
from advisor.plan.ranking import best_turns, ranked
from advisor.plan.reasons import searched
from advisor.plan.recommendation import Question
from advisor.report.answer_text import answer
from advisor.report.documents import recommendation_document
from advisor.sharing import Group, Hybrid, Mig, Mps, Naive, Serial, parse_sharing
from advisor.sharing.in_turn import in_turn
from advisor.sharing.traversal import instance_sets, one_by_one
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


def advice(jobs, objective="makespan", predictor=None, model=H200):
    return with_commands(ranked(jobs, model, predictor or StandIn(model), objective))


class MpsHurts(StandIn):
    """Sharing costs more than it gives."""

    def _steps(self, profiles, sharing):
        steps = super()._steps(profiles, sharing)
        return steps if isinstance(sharing, Serial) else [2 * each for each in steps]


def test_jobs_that_wait_for_their_hosts_are_told_to_share():
    advised = advice([HOST_BOUND] * 3)
    assert not isinstance(advised.best.sharing, Serial)
    assert advised.best.speedup_vs_serial == pytest.approx(3)
    assert "the host is the limit" in advised.best.why


def test_dont_share_is_an_answer():
    advised = advice([GPU_BOUND] * 3, predictor=MpsHurts())
    assert advised.best is advised.plans[0]
    assert isinstance(advised.best.sharing, Serial)


def test_plans_are_ranked_from_one_without_gaps_and_serial_is_among_them():
    advised = advice([HOST_BOUND, GPU_BOUND])
    assert [plan.rank for plan in advised.plans] == list(range(1, len(advised.plans) + 1))
    makespans = [plan.makespan_s for plan in advised.plans]
    later = [min(makespans[at:]) for at in range(len(makespans))]
    assert all(own <= (1 + CLOSE) * least for own, least in zip(makespans, later, strict=True))
    assert advised.serial in advised.plans


def test_every_kind_is_considered_and_only_the_best_few_of_many_are_kept():
    advised = advice([HOST_BOUND, GPU_BOUND])
    kinds = [type(plan.sharing) for plan in advised.plans]
    assert {Serial, Naive, Mps, Mig, Hybrid} == set(kinds)
    assert kinds.count(Mig) <= MOST_OF_A_KIND
    modes = [plan.sharing.mode for plan in advised.plans]
    assert modes.count("mps") == 1
    assert modes.count("mps-limits") <= MOST_OF_A_KIND
    assert advised.considered > len(advised.plans)


@pytest.mark.parametrize("objective", ["deadlines", "mean-completion", "makespan"])
def test_no_order_of_jobs_one_after_another_beats_the_one_that_gains_are_over(objective):
    jobs = [
        replace(each, epochs=epochs, deadline_s=due_s)
        for each, epochs, due_s in (
            (GPU_BOUND, 3, 9e5), (HOST_BOUND, 1, None), (HOST_BOUND, 2, 3e4), (GPU_BOUND, 1, 4e5),
        )
    ]  # fmt: skip
    mixes = Mixes(jobs, StandIn(H200))
    orders = (in_turn([Group((n,), Serial()) for n in each]) for each in permutations((1, 2, 3, 4)))
    costs = [known_cost(forecast(mixes, each), objective).p50 for each in orders]
    found = known_cost(forecast(mixes, best_turns(jobs, objective)), objective).p50
    assert found == pytest.approx(min(costs))
    if objective != "makespan":
        assert found < 0.9 * max(costs)


def test_one_after_another_is_one_plan_in_the_order_that_keeps_deadlines_best():
    jobs = [replace(GPU_BOUND, deadline_s=9e5), replace(HOST_BOUND, deadline_s=3e4)]
    found = advice(jobs, "deadlines")
    alone = [plan for plan in found.plans if one_by_one(plan.sharing)]
    assert [str(plan.sharing) for plan in alone] == ["serial[2];serial[1]"]
    assert alone == [found.serial]


def test_limits_that_the_search_never_tries_are_named_last():
    three, two = advice([HOST_BOUND, GPU_BOUND, GPU_BOUND]), advice([HOST_BOUND, GPU_BOUND])
    assert "unequal limits in phases" in three.left_out[-1].sharing
    assert "unequal limits" not in three.best.why
    assert not any("unequal limits" in each.sharing for each in two.left_out)


def test_a_plan_says_which_deadlines_it_misses_whatever_it_is_ranked_by():
    alone_s = GPU_BOUND.work_steps * GPU_BOUND.profile.step_s
    due = replace(GPU_BOUND, deadline_s=1.02 * alone_s)
    advised = advice([HOST_BOUND, due], "energy")
    late = [plan for plan in advised.plans if plan.late_jobs]
    assert 0 < len(late) < len(advised.plans)
    for plan in advised.plans:
        assert bool(plan.late_jobs) == (plan.ends_s[1].p50 > due.deadline_s)
        assert ("too late for its deadline: resnet152" in plan.why) == bool(plan.late_jobs)
    document = recommendation_document(advised)
    assert [plan["late"] for plan in document["plans"]] == [
        list(p.late_jobs) for p in advised.plans
    ]


def test_joules_are_not_saved_at_the_price_of_a_deadline_that_can_be_kept():
    class Hungry(StandIn):
        """Whatever shares the GPU makes it draw ten times as much."""

        def predict(self, profiles, sharing):
            mix = super().predict(profiles, sharing)
            return mix if len(profiles) == 1 else replace(mix, power_w=mix.power_w.scaled(10))

    jobs = [replace(HOST_BOUND, epochs=3)] * 2
    alone_s = jobs[0].work_steps * HOST_BOUND.profile.step_s
    assert isinstance(advice(jobs, "energy", Hungry()).best.sharing, Serial)
    due = [replace(job, deadline_s=1.5 * alone_s) for job in jobs]
    advised = advice(due, "energy", Hungry())
    missed = [len(plan.late_jobs) for plan in advised.plans]
    assert missed == sorted(missed)
    assert advised.best.late_jobs == ()
    assert advised.serial.late_jobs == (2,)


def test_what_was_predicted_and_what_was_compared_roughly_is_said():
    few = advice([HOST_BOUND, GPU_BOUND])
    assert few.searched.startswith("every set of jobs was predicted")
    assert recommendation_document(few)["searched"] == few.searched
    assert searched(7, 300, asked=False).startswith("the surrogate model chose")
    assert searched(9, 300, asked=None).startswith("300 limits were compared by")


def test_a_single_job_has_nothing_to_share():
    advised = advice([HOST_BOUND])
    assert advised.searched is None
    assert [str(plan.sharing) for plan in advised.plans] == ["serial"]
    assert "nothing else is possible" in advised.best.why


def test_a_mix_that_does_not_fit_is_left_out_with_what_it_takes():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
    advised = advice([big, big])
    assert [str(plan.sharing) for plan in advised.plans] == ["serial"]
    reasons = {each.sharing: each.why for each in advised.left_out}
    assert reasons["mps"] == "does not fit: the jobs take 200,000 MiB of 143,771 MiB"
    assert "enough memory" in reasons["mig"]


def test_a_job_that_fits_nowhere_says_how_much_is_missing_and_which_job():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=200_000))
    with pytest.raises(NothingFits, match=r"dlrm-29gb-bs128 .* 220,000 MiB .* 76,229 MiB are miss"):
        advice([HOST_BOUND, big])


def test_a_gpu_without_mig_says_so():
    l40s = gpu("l40s-48gb")
    advised = advice([HOST_BOUND] * 2, model=l40s)
    assert ("mig", "l40s-48gb has no MIG") in [(e.sharing, e.why) for e in advised.left_out]


def test_more_jobs_than_mps_serves_are_not_offered_mps():
    few = replace(H200, max_mps_clients=2)
    advised = advice([HOST_BOUND] * 3, model=few)
    assert ("mps", "MPS serves 2 processes at most, not 3") in [
        (e.sharing, e.why) for e in advised.left_out
    ]
    assert not any(isinstance(plan.sharing, Mps) for plan in advised.plans)


def test_a_difference_within_the_intervals_is_called_equal():
    advised = advice([GPU_BOUND] * 2, predictor=StandIn(wide=0.5))
    assert "; as good as the next" in advised.best.why
    assert all(plan.ties_best for plan in advised.plans[:2])
    sure = advice([GPU_BOUND] * 2, predictor=StandIn(wide=0.0))
    assert not sure.serial.ties_best
    assert "25% behind the best" in sure.serial.why
    assert "within our error" not in sure.serial.why


def test_mig_is_said_to_be_unconfirmed_in_words_and_in_numbers():
    for plan in advice([HOST_BOUND] * 2).plans:
        if isinstance(plan.sharing, Mig):
            assert not plan.prediction.confirmed_on_hardware
            assert "not confirmed on hardware" in plan.why
            assert "Untested on MIG hardware" in plan.commands[0]


def test_without_epoch_lengths_the_ranking_falls_back_and_says_so():
    lost = replace(GPU_BOUND.profile.workload, examples_per_epoch=None)
    advised = advice([Job(replace(GPU_BOUND.profile, workload=lost)), HOST_BOUND])
    assert (advised.objective, advised.ranked_by) == ("makespan", "throughput")
    assert "every job's length" in advised.note
    fair = [plan for plan in advised.plans if not starved(plan, "p50")]
    speeds = [plan.prediction.weighted_speedup for plan in fair]
    assert speeds == sorted(speeds, reverse=True)
    assert all(plan.makespan_s is None for plan in advised.plans)


@pytest.mark.parametrize("objective", ["makespan", "throughput", "energy"])
def test_every_objective_ranks_every_plan(objective):
    advised = advice([HOST_BOUND, GPU_BOUND], objective)
    assert advised.ranked_by == objective
    assert "the next" in advised.best.why


def test_limits_are_in_the_order_of_the_jobs():
    advised = advice([HOST_BOUND, GPU_BOUND] * 2)
    for plan in advised.plans:
        if isinstance(plan.sharing, Mps) and plan.sharing.limits:
            first, second, third, fourth = plan.sharing.limits
            assert (first, second) == (third, fourth)
            assert second >= first


class MigLooksGood(StandIn):
    """Mates on MIG instances are estimated to be so much faster than any that was measured."""

    def __init__(self, faster):
        super().__init__(wide=0.1)
        self.faster = faster

    def _steps(self, profiles, sharing):
        if isinstance(sharing, Mig):
            return [self.faster * each for each in super()._steps(profiles, Mps())]
        return super()._steps(profiles, sharing)


def test_an_unconfirmed_plan_does_not_go_before_a_confirmed_one_that_costs_about_as_much():
    advised = advice([GPU_BOUND] * 2, predictor=MigLooksGood(0.98))
    assert advised.best.prediction.confirmed_on_hardware
    estimated = next(p for p in advised.plans if not p.prediction.confirmed_on_hardware)
    assert "ahead of the best, within our error" in estimated.why
    before = advised.plans[estimated.rank - 2]
    assert before.precedes_by == "confirmed"
    assert "as the best of those within 3.7% whose kind real runs stand behind" in before.why
    assert "1 is first as the best of those within 3.7% whose kind" in answer(advised)


def test_an_unconfirmed_plan_that_costs_less_comes_first_and_the_answer_names_what_was_measured():
    advised = advice([GPU_BOUND] * 2, predictor=MigLooksGood(0.9))
    assert not advised.best.prediction.confirmed_on_hardware
    ran = next(each for each in advised.plans if each.prediction.confirmed_on_hardware)
    assert ran.ties_best
    said = answer(advised)
    assert "not confirmed on hardware" in said
    assert f"; real runs stand behind {ran.rank}, not behind 1" in said


def test_plans_that_differ_only_in_where_instances_lie_are_shown_once():
    mixes = Mixes([HOST_BOUND, GPU_BOUND], StandIn())
    texts = ["mig=3g.71gb@0,3g.71gb@4", "mig=3g.71gb@4,3g.71gb@0"]
    question = Question(gpu=H200, predictor=StandIn(), objective="makespan")
    kept = plans_to_show([forecast(mixes, parse_sharing(text)) for text in texts], question)
    assert [str(each.forecast.sharing) for each in kept] == texts[:1]


def test_groups_in_another_order_are_shown_once():
    mixes = Mixes([HOST_BOUND, GPU_BOUND, GPU_BOUND], StandIn())
    texts = ["serial[1];mps[2,3]", "mps[2,3];serial[1]"]
    question = Question(gpu=H200, predictor=StandIn(), objective="makespan")
    kept = plans_to_show([forecast(mixes, parse_sharing(text)) for text in texts], question)
    assert [str(each.forecast.sharing) for each in kept] == texts[:1]


@pytest.mark.parametrize("objective", ["makespan", "throughput", "energy"])
def test_which_of_equal_jobs_has_which_instance_makes_no_other_plan(objective):
    cut = [plan.sharing for plan in advice([GPU_BOUND] * 3, objective).plans]
    sizes = [sorted(each.profile for each in mig.instances) for mig in cut if isinstance(mig, Mig)]
    assert sizes
    assert len({tuple(each) for each in sizes}) == len(sizes)


def test_groups_on_one_instance_each_are_no_plan():
    for jobs in ([GPU_BOUND] * 2, [HOST_BOUND, GPU_BOUND, GPU_BOUND]):
        for plan in advice(jobs).plans:
            cut = instance_sets(plan.sharing)
            assert not cut or max(len(each.partitions) for each in cut) > 1


def test_a_rough_answer_looks_at_the_whole_gpu_only_and_says_that_the_search_stopped_early():
    jobs = [HOST_BOUND, GPU_BOUND]
    rough = ranked(jobs, H200, StandIn(H200), "makespan", rough=True)
    exact = ranked(jobs, H200, StandIn(H200), "makespan")
    assert {str(plan.sharing) for plan in rough.plans} == {"serial", "naive", "mps"}
    assert "the search stopped early" in {each.why for each in rough.left_out}
    assert "the search stopped early" not in {each.why for each in exact.left_out}
    known = {str(plan.sharing): plan.prediction for plan in exact.plans}
    assert all(known[str(plan.sharing)] == plan.prediction for plan in rough.plans)
