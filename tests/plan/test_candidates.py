"""What one GPU may run."""

import pytest

from advisor.errors import InvalidInput
from advisor.plan.candidates import Candidate
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.job import Job
from tests import synthetic

ONE = Job(synthetic.profile("bert-base-finetune-bs16"))
OTHER = Job(synthetic.profile("resnet50-imagenet64-bs128"))


def test_a_candidate_takes_its_jobs_by_their_numbers():
    candidate = Candidate(jobs=(1, 3), sharing=Mps())
    assert candidate.chosen([ONE, ONE, OTHER]) == (ONE, OTHER)


def test_a_job_that_is_not_there_is_refused():
    with pytest.raises(InvalidInput, match="no job 2"):
        Candidate(jobs=(2,), sharing=Naive()).chosen([ONE])


@pytest.mark.parametrize(
    ("jobs", "sharing"),
    [
        ((), "naive"), ((0,), "naive"), ((2, 1), "naive"), ((1, 1), "naive"),
        ((1, 2), "mps=50"), ((3, 4), "mig=3g.71gb[3,4]"),
    ],
)  # fmt: skip
def test_a_setup_that_makes_no_sense_is_refused(jobs, sharing):
    with pytest.raises(InvalidInput):
        Candidate(jobs=jobs, sharing=parse_sharing(sharing))
