import re
from dataclasses import replace

import pytest

from advisor.plan.ranking import ranked
from advisor.report.answer_text import answer, paragraphs
from advisor.report.sharing_words import explained
from advisor.report.units import duration
from advisor.sharing import Mps, Serial, parse_sharing
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
    assert sentence.startswith("MPS on an h200-141gb: all done in ")
    assert "1.25x as fast as one after another, saves " in sentence
    assert "gain 1.25x (1.24-1.26) in nine of ten runs" in sentence


def test_the_first_line_holds_no_range_and_what_memory_is_left():
    first, sure, *_ = paragraphs(advised([GPU_BOUND] * 2))
    assert "(" not in first
    assert first.endswith(" GiB to spare.")
    assert sure.startswith("How sure: ")
    assert "predicted, from real runs of this kind" in sure


def test_serial_is_advised_in_so_many_words():
    sentence = answer(advised([GPU_BOUND] * 3, Hurting(wide=0.01)))
    assert sentence.startswith("Don't share, one after another on an h200-141gb: all done in ")


def test_one_job_has_nothing_to_share():
    assert answer(advised([GPU_BOUND])).startswith("Nothing to share: one job, done in ")


def test_plans_that_are_equal_within_our_error_are_named():
    sentence = answer(advised([GPU_BOUND] * 2, StandIn(wide=0.5)))
    assert "Maybe as good, within our error: 2 (" in sentence
    assert "; 1 is first " in sentence


def test_a_fallback_is_said():
    endless = replace(GPU_BOUND.profile.workload, examples_per_epoch=None)
    unknown = Job(replace(GPU_BOUND.profile, workload=endless))
    sentence = answer(advised([unknown, HOST_BOUND]))
    assert "Ranked by throughput: makespan needs every job's length" in sentence
    assert "the throughput of one after another" in sentence


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("throughput", "the throughput of one after another"),
        ("energy", " Wh (one after another: "),
        ("mean-completion", "on average, "),
        ("deadlines", "every deadline is kept: the tightest job takes "),
    ],
)
def test_every_objective_has_its_own_outcome(objective, said):
    due = replace(HOST_BOUND, deadline_s=1e6)
    assert said in answer(advised([HOST_BOUND, due], objective=objective))


def test_a_range_of_anything_but_when_all_is_done_says_of_what_it_is():
    for objective, of in (
        ("makespan", ""), ("energy", "energy until all are done "),
        ("mean-completion", "until a job ends, on average "),
    ):  # fmt: skip
        first, sure, *_ = paragraphs(advised([GPU_BOUND] * 3, Hurting(wide=0.01), objective))
        assert "all done in " in first
        assert re.match(f"How sure: {of}[0-9]", sure)


def test_a_plan_as_good_that_treats_a_job_better_is_named():
    found = advised([GPU_BOUND, HOST_BOUND], StandIn(wide=0.5), "throughput")
    best = next(each for each in found.plans if each.sharing == Mps())
    second = replace(next(each for each in found.plans if each is not best), rank=2)
    first, last = best.prediction.jobs
    kinder = replace(best.prediction, jobs=(first, replace(last, step_s=last.step_s.scaled(0.8))))
    alike, better = (
        replace(found, plans=(best, replace(second, prediction=mix, ties_best=True)))
        for mix in (best.prediction, kinder)
    )
    assert "treats" not in answer(alike)
    said = "; 2 treats resnet26-cifar10-bs128 better, 1.25x as fast while all run."
    assert said in answer(better)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("mps=86,86,86", "each may use 86 % of the SMs"),
        ("mps=100,57,57", "of the SMs at most A 100 %, 2 x B 57 %"),
        ("serial[1];naive[2,3]", "A, then 2 x B"),
        ("mig=4g.71gb@0[1,2]/mps+3g.71gb@4[3]", "A, B on 4g.71gb; B on 3g.71gb"),
        (
            "mig=7g.141gb@0/ci=3c[1]+4c[2,3]",
            "A on 3 compute slices of 7g.141gb; 2 x B on 4 compute slices of 7g.141gb",
        ),
        ("naive", "the driver gives the GPU to each in turn"),
    ],
)
def test_notation_is_explained_for_the_jobs_at_hand(words, said):
    assert explained(parse_sharing(words), ["A", "B", "B"]) == said


def test_a_job_that_waits_for_its_host_is_named_with_what_to_measure():
    assert "compare the two profiles" in answer(advised([HOST_BOUND] * 2))
    assert "compare the two profiles" not in answer(advised([GPU_BOUND] * 2))


def test_too_few_cores_are_said():
    class Short(StandIn):
        def predict(self, profiles, sharing):
            return replace(super().predict(profiles, sharing), host_stretch=1.9)

    assert "The host has too few cores: its work takes 1.90x as long." in answer(
        advised([HOST_BOUND] * 2, Short())
    )
    assert "too few cores" not in answer(advised([HOST_BOUND] * 2))


def test_a_plan_that_misses_a_deadline_says_so_whatever_plans_are_ranked_by():
    hurried = replace(HOST_BOUND, deadline_s=1.0)
    sentence = answer(advised([hurried, GPU_BOUND]))
    assert f"Plan 1 is too late for {hurried.name}, and no plan keeps every deadline" in sentence
    calm = replace(HOST_BOUND, deadline_s=1e8)
    assert "Under plan 1 every deadline is kept." in answer(advised([calm, GPU_BOUND]))
    assert "deadline" not in answer(advised([HOST_BOUND, GPU_BOUND]))


def test_a_deadline_that_nothing_can_keep_is_told_from_one_that_others_cost():
    alone_s = advised([GPU_BOUND, HOST_BOUND]).serial.prediction.jobs[0].epoch_s.p50
    for due_s, hopeless in ((0.9 * alone_s, True), (1.001 * alone_s, False)):
        jobs = [replace(GPU_BOUND, deadline_s=due_s)] * 2
        said = answer(advised(jobs))
        needs = f"{GPU_BOUND.name} needs {duration(alone_s)} even alone, due in {duration(due_s)}."
        assert (needs in said) == hopeless
        assert said.count("even alone") == int(hopeless)


def test_jobs_that_do_not_share_for_want_of_memory_are_told_so():
    big = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=100_000))
    assert "All at once does not fit: the jobs take 20" in answer(advised([big] * 2))
    assert "All at once" not in answer(advised([HOST_BOUND] * 2))


def test_a_job_that_is_over_in_no_time_beside_another_is_told_so_where_lengths_count():
    long, short = replace(GPU_BOUND, epochs=90), replace(HOST_BOUND, epochs=2)
    share = 100 * short.alone_s / long.alone_s
    said = f"Lengths differ: {short.name} (2 epochs) is {share:.2g}% of {long.name} (90 epochs)"
    assert said in answer(advised([long, short]))
    assert "Lengths differ" not in answer(advised([long, short], objective="throughput"))
    assert "Lengths differ" not in answer(advised([long, long]))


def test_several_deadlines_that_only_medians_keep_are_told_in_one_sentence():
    ends_s = advised([HOST_BOUND, GPU_BOUND], StandIn(wide=0.2)).best.ends_s
    jobs = [
        replace(job, deadline_s=(end_s.p50 + end_s.p95) / 2)
        for job, end_s in zip([HOST_BOUND, GPU_BOUND], ends_s, strict=True)
    ]
    said = answer(advised(jobs, StandIn(wide=0.2)))
    assert "at the upper end of their ranges both are late." in said
    more = replace(GPU_BOUND, deadline_s=3e8)
    said = answer(advised([*jobs, more], StandIn(wide=0.2)))
    assert "both" not in said


def test_a_deadline_that_only_the_median_keeps_is_called_unsure():
    end_s = advised([HOST_BOUND, GPU_BOUND], StandIn(wide=0.2)).best.ends_s[0]
    for due_s, unsure in (((end_s.p50 + end_s.p95) / 2, True), (1.01 * end_s.p95, False)):
        jobs = [replace(HOST_BOUND, deadline_s=due_s), GPU_BOUND]
        said = answer(advised(jobs, StandIn(wide=0.2)))
        assert "Under plan 1 every deadline is kept." in said
        late = f"at the upper end of its range {HOST_BOUND.name} is late"
        assert (late in said) == unsure


def test_a_plan_that_keeps_a_deadline_is_named_where_the_first_one_does_not():
    by = {plan.rank: plan for plan in advised([GPU_BOUND, HOST_BOUND]).plans}
    ends_s = {rank: plan.ends_s[1].p50 for rank, plan in by.items()}
    soonest = min(ends_s, key=ends_s.__getitem__)
    due_s = (ends_s[soonest] + ends_s[1]) / 2
    sentence = answer(advised([GPU_BOUND, replace(HOST_BOUND, deadline_s=due_s)]))
    assert soonest != 1
    assert re.search(r"; plan \d+ keeps every deadline: --objective deadlines\.", sentence)


def test_what_a_protected_job_rules_out_is_said_without_details():
    sentence = answer(advised([replace(GPU_BOUND, protect=0.01), GPU_BOUND]))
    assert re.search(r"\d+ ways? to share left out: slowing a protected job more", sentence)
