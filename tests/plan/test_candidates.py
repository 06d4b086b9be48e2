"""What one GPU may run."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.plan.candidates import Candidate
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.job import Job
from tests import synthetic


def at(batch, **how):
    profile = synthetic.profile("bert-base-finetune-bs16", **how)
    name = f"bert-base-finetune-bs{batch}"
    return replace(profile, workload=replace(profile.workload, name=name, batch=batch))


CHOICE = Job(at(16), choices=(at(4), at(32)))
FIXED = Job(synthetic.profile("resnet50-imagenet64-bs128"))


def test_a_setup_takes_its_jobs_at_the_batch_sizes_it_chooses():
    candidate = Candidate(jobs=(1, 3), sharing=Mps(), batches=(32, 128))
    assert [job.batch for job in candidate.chosen([CHOICE, FIXED, FIXED])] == [32, 128]
    plain = Candidate(jobs=(1,), sharing=Naive())
    assert plain.chosen([CHOICE])[0].profile == CHOICE.profile


def test_a_batch_size_without_a_profile_is_refused():
    with pytest.raises(InvalidInput, match="It may have 16, 4, 32"):
        Candidate(jobs=(1,), sharing=Naive(), batches=(64,)).chosen([CHOICE])


@pytest.mark.parametrize(
    ("jobs", "sharing", "batches"),
    [
        ((), "naive", ()), ((0,), "naive", ()), ((2, 1), "naive", ()), ((1, 1), "naive", ()),
        ((1, 2), "mps=50", ()), ((3, 4), "mig=3g.71gb[3,4]", ()), ((1, 2), "naive", (16,)),
    ],
)  # fmt: skip
def test_a_setup_that_makes_no_sense_is_refused(jobs, sharing, batches):
    with pytest.raises(InvalidInput):
        Candidate(jobs=jobs, sharing=parse_sharing(sharing), batches=batches)
