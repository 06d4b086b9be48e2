"""Arguments of the library that a command line cannot have."""

import pytest

from advisor import Advisor, Job
from advisor.errors import InvalidInput
from advisor.plan.trials import TrialTerms
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival

RESNET = "resnet26-cifar10-bs128"


def test_a_name_is_a_job_in_every_question():
    one = Advisor()
    job = Job(one.find_profile(RESNET), epochs=2)
    copies = one.recommend_copies(f"{RESNET}@2")
    assert copies == one.recommend_copies(job)
    terms = TrialTerms(count=4)
    assert one.trials(RESNET, terms) == one.trials(job.profile, terms)
    pair = ("naive", "mps")
    assert one.compare(pair, [f"{RESNET}:2@2"]).plans == one.compare(pair, [job, job]).plans
    running = one.running([RESNET], "mps")
    assert one.admit(running, [RESNET]).plans


@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda _: Advisor(None), "a100-40gb"),
        (lambda _: Advisor(power_cap_w="400"), "power_cap_w"),
        (lambda _: Advisor(host_cores=0), "host_cores"),
        (lambda _: Advisor(profiles=3), "profiles"),
        (lambda one: one.recommend(RESNET), r"\['resnet26"),
        (lambda one: one.recommend([RESNET], "speed"), "makespan, "),
        (lambda one: one.recommend([RESNET], conditions=3), "conditions"),
        (lambda one: one.recommend([RESNET], level="p99"), "p05, p50, p95"),
        (lambda one: one.predict([RESNET], None), "mps=50,50"),
        (lambda one: one.predict([None], "mps"), "a name, a Profile or a Job"),
        (lambda one: one.recommend_copies(f"{RESNET}:2"), "without :COPIES"),
        (lambda one: one.compare(("naive",), [RESNET]), "two plans"),
        (lambda one: one.compare(("naive", "mps"), [RESNET], "speed"), "objective"),
        (lambda one: one.simulate([RESNET], "mps", Fleet(one.gpu, 1, "first-come")), "Arrival"),
        (lambda one: one.simulate([], "mps", None), r"Fleet\('h200-141gb', 1"),
        (lambda one: Fleet(one.gpu, 1, "x"), "first-come"),
        (lambda one: one.admit(3, [RESNET]), "what runs"),
        (lambda one: one.trials(RESNET, 4), r"TrialTerms\(count=24\)"),
        (lambda one: one.trials(RESNET, TrialTerms(count="x")), "count"),
        (lambda one: one.trials(RESNET, TrialTerms(gpus="4x")), "gpus"),
        (
            lambda one: one.trials(Job(one.find_profile(RESNET), gpus=2), TrialTerms(gpus=2)),
            "share",
        ),
        (lambda one: one.find_profile(None), "a profile"),
        (lambda _: Job(RESNET), r"find_profile\('resnet26-cifar10-bs128'\)"),
        (lambda one: Job(one.find_profile(RESNET), epochs="x"), "epochs"),
        (lambda one: Job(one.find_profile(RESNET), isolated="no"), "True or False"),
        (lambda _: Arrival(RESNET), "Job"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_with_what_to_write(ask, remedy):
    with pytest.raises(InvalidInput, match=remedy):
        ask(Advisor())


def test_a_calibration_may_be_named_by_a_word_as_folders_may(tmp_path):
    with pytest.raises(InvalidInput, match=r"nowhere\.json: No such file"):
        Advisor(calibration=f"{tmp_path}/nowhere.json").predict([RESNET], "naive")
    assert Advisor(calibration="none").predict([RESNET], "naive").prediction.jobs
