"""What the library says of arguments that a command line cannot have."""

import pytest

from advisor import Advisor, Job
from advisor.errors import InvalidInput
from advisor.plan.admission import AdmissionLimits
from advisor.plan.fleet_terms import FleetTerms
from advisor.timeline.simulate import Fleet
from advisor.workload.job import Arrival

RESNET = "resnet26-cifar10-bs128"


def test_a_name_where_a_list_of_names_belongs_is_not_taken_letter_by_letter():
    with pytest.raises(InvalidInput, match=r"jobs are a list of names, as \['resnet26"):
        Advisor().recommend(RESNET)


def test_an_objective_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidInput, match=r"no objective is called 'speed'.* makespan, "):
        Advisor().recommend([RESNET], "speed")


def test_a_job_of_a_name_says_what_finds_its_profile():
    with pytest.raises(InvalidInput, match=r"find_profile\('resnet26-cifar10-bs128'\)"):
        Job(RESNET)


def test_a_name_is_a_job_in_every_question():
    one = Advisor()
    job = Job(one.find_profile(RESNET), epochs=2)
    copies = one.recommend_copies(f"{RESNET}@2")
    assert copies == one.recommend_copies(job)
    assert one.trials(RESNET, count=4) == one.trials(job.profile, count=4)
    pair = ("naive", "mps")
    assert one.compare(pair, [f"{RESNET}:2@2"]).cost == one.compare(pair, [job, job]).cost
    terms = FleetTerms(gpus=2, limit_s=1.0)
    assert len(one.recommend_fleet([f"{RESNET}:60"], terms).jobs) == 60
    running = one.running([RESNET], "mps")
    assert one.admit(running, [RESNET], AdmissionLimits()).found
    assert one.batches(RESNET) == one.batches([RESNET])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda _: Advisor(None), r"a GPU is written as its name, e\.g\. 'a100-40gb'; got None"),
        (lambda one: one.predict([RESNET], None), "a way to share is written as 'mps=50,50'"),
        (lambda one: one.predict([None], "mps"), "a job is a name, a Profile or a Job; got None"),
        (lambda one: one.predict(7, "mps"), r"jobs are a list of names, as \[7\]"),
        (lambda one: one.recommend_copies(f"{RESNET}:2"), "Write it without :COPIES"),
        (lambda one: one.compare(("naive",), [RESNET]), r"two plans are compared.*; got 1"),
        (lambda one: one.compare("naive", [RESNET]), "plans are a list of two ways to share"),
        (lambda one: one.compare(("naive", 3), [RESNET]), "a way to share is written as"),
        (lambda one: one.compare(("naive", "mps"), [RESNET], "speed"), "no objective is called"),
        (lambda one: one.recommend_fleet([RESNET], 2), r"FleetTerms\(gpus=2\); got 2"),
        (lambda _: FleetTerms(objective="speed"), "no objective is called 'speed'"),
        (lambda one: one.batches([7]), "is written as its name; got 7"),
        (lambda one: one.batches(RESNET, on="whole"), r"on are a list of slices, as \['whole'\]"),
        (lambda one: one.running(RESNET, "mps"), "jobs are a list of names"),
        (lambda one: one.simulate([RESNET], "mps", Fleet(one.gpu, 1, "first-come")), "Arrival"),
        (lambda _: Arrival(RESNET), "Arrival takes a Job and a number of seconds, got str"),
        (lambda _: Job(None), "Job takes a Profile, got NoneType"),
        (lambda one: Job(one.find_profile(RESNET), epochs="x"), "epochs is a number, got 'x'"),
        (lambda one: Job(one.find_profile(RESNET), epochs=None), "epochs is a number, got None"),
        (lambda one: Job(one.find_profile(RESNET), choices="x"), "choices is a tuple of Profiles"),
        (lambda one: Job(one.find_profile(RESNET), choices=[RESNET]), "choices are Profiles, as"),
        (lambda one: Job(one.find_profile(RESNET), user=3), "user is a name, got 3"),
        (lambda one: Job(one.find_profile(RESNET), isolated="no"), "isolated is True or False"),
        (lambda one: one.find_profile(None), "a profile is written as its name; got None"),
        (lambda one: one.recommend([RESNET], conditions=3), r"conditions is written as .*; got 3"),
        (lambda one: one.recommend([RESNET], level="p99"), "level is one of p05, p50, p95; got"),
        (lambda one: one.trials(RESNET, count="x"), "count is a number; got 'x'"),
        (lambda one: one.trials(RESNET, count=1.5), "a search has 1 to 100,000 trials, got 1.5"),
        (lambda one: one.trials(RESNET, steps="x"), "steps is a number; got 'x'"),
        (lambda one: one.simulate([], "mps", Fleet(one.gpu, 1, "first-come")), "no job arrives"),
        (lambda one: one.simulate([], "mps", None), r"written as Fleet\('h200-141gb', 1"),
        (lambda one: one.simulate([], "mps", Fleet("a100-40gb", 1, "first-come")), "a fleet of "),
        (lambda one: Fleet(one.gpu, 1, "x"), "a policy is one of first-come, .*; got 'x'"),
        (lambda one: one.admit(3, [RESNET], AdmissionLimits()), "what runs is .*; got 3"),
        (lambda one: one.batches([]), "no job is given"),
        (lambda _: Advisor(power_cap_w="400"), "power_cap_w is a number; got '400'"),
        (lambda _: Advisor(host_cores=0), "host_cores is a whole number of at least 1; got 0"),
        (lambda _: Advisor(profiles=3), "profiles is a path, e.g. 'mine'; got 3"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_what_to_write(asked, said):
    with pytest.raises(InvalidInput, match=said):
        asked(Advisor())


def test_a_calibration_may_be_named_by_a_word_as_folders_may(tmp_path):
    with pytest.raises(InvalidInput, match=r"nowhere\.json: No such file"):
        Advisor(calibration=f"{tmp_path}/nowhere.json").predict([RESNET], "naive")
    assert Advisor(calibration="none").predict([RESNET], "naive").prediction.jobs
