"""Points of the plan space on several GPUs."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.plan.plan_space import Deployment, Setup, batch_choices, forbidden
from advisor.plan.rules import UNCONDITIONAL, rules
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200


def at(batch, **how):
    profile = synthetic.profile("bert-base-finetune-bs16", **how)
    name = f"bert-base-finetune-bs{batch}"
    return replace(profile, workload=replace(profile.workload, name=name, batch=batch))


CHOICE = Job(at(16), choices=(at(4), at(32)))
FIXED = Job(synthetic.profile("resnet50-imagenet64-bs128"))


def why(gpus, jobs, most_gpus=4):
    return forbidden(Deployment(tuple(gpus)), jobs, H200, most_gpus, rules(H200, UNCONDITIONAL))


def test_a_setup_takes_its_jobs_at_the_batch_sizes_it_chooses():
    setup = Setup(jobs=(1, 3), sharing=Mps(), batches=(32, 128))
    assert [job.batch for job in setup.chosen([CHOICE, FIXED, FIXED])] == [32, 128]
    plain = Setup(jobs=(1,), sharing=Naive())
    assert plain.chosen([CHOICE])[0].profile == CHOICE.profile


def test_a_batch_size_without_a_profile_is_refused():
    with pytest.raises(InvalidInput, match="It may have 16, 4, 32"):
        Setup(jobs=(1,), sharing=Naive(), batches=(64,)).chosen([CHOICE])


@pytest.mark.parametrize(
    ("jobs", "sharing", "batches"),
    [
        ((), "naive", ()), ((0,), "naive", ()), ((2, 1), "naive", ()), ((1, 1), "naive", ()),
        ((1, 2), "mps=50", ()), ((3, 4), "mig=3g.71gb[3,4]", ()), ((1, 2), "naive", (16,)),
    ],
)  # fmt: skip
def test_a_setup_that_makes_no_sense_is_refused(jobs, sharing, batches):
    with pytest.raises(InvalidInput):
        Setup(jobs=jobs, sharing=parse_sharing(sharing), batches=batches)


def test_a_job_is_on_one_gpu():
    with pytest.raises(InvalidInput, match="job 1 is named twice"):
        Deployment((Setup(jobs=(1,), sharing=Naive()), Setup(jobs=(1, 2), sharing=Naive())))


def test_every_job_has_a_gpu_and_every_gpu_exists():
    first, second = Setup(jobs=(1,), sharing=Naive()), Setup(jobs=(2,), sharing=Naive())
    assert why([first, second], [FIXED] * 2) is None
    assert "there is 1" in why([first, second], [FIXED] * 2, most_gpus=1)
    assert "job 2 is on no GPU" in why([first], [FIXED] * 2)
    with pytest.raises(InvalidInput, match="there is no job 2"):
        why([first, second], [FIXED])


def test_rules_hold_on_each_gpu_for_its_own_jobs():
    ada, ben = replace(FIXED, user="ada"), replace(FIXED, user="ben")
    apart = [Setup(jobs=(1,), sharing=Mps()), Setup(jobs=(2,), sharing=Mps())]
    assert why(apart, [ada, ben]) is None
    assert "one user" in why([Setup(jobs=(1, 2), sharing=Mps())], [ada, ben])


def test_a_cap_that_cannot_be_set_is_refused():
    with pytest.raises(InvalidInput, match="cannot be set"):
        why([Setup(jobs=(1,), sharing=Naive(), power_cap_w=5000.0)], [FIXED])


def test_every_combination_of_batch_sizes_comes_once():
    found = [[job.batch for job in each] for each in batch_choices([CHOICE, CHOICE, FIXED])]
    assert found[0] == [16, 16, 128]
    assert len(found) == len({tuple(each) for each in found}) == 6
    assert list(batch_choices([FIXED])) == [(FIXED,)]
