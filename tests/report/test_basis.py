"""The basis of intervals, for each description of a job on each GPU."""

import re

import pytest

from advisor.api import Advisor
from advisor.hardware.gpus import known_gpus
from advisor.prediction.other_gpu import on_gpu
from advisor.report.basis import basis_sentences
from advisor.report.page_words import in_page_words
from tests import shelf, synthetic

TRACED = list(shelf.PROFILES.values())[1]
DESCRIBED = {
    "kernel by kernel": TRACED,
    "GPU utilization were read": synthetic.numbers(workload="watched").whole(),
    "counters of DCGM were read": synthetic.numbers(workload="counted", sm_active=0.7).whole(),
    "GPU utilization is unknown": synthetic.numbers(
        workload="bare", gpu_utilization=None, memory_utilization=None
    ).whole(),
    "only the duration is known": synthetic.numbers(
        workload="timed", step_s=None, duration_s=600
    ).whole(),
}


def sentences(key, *profiles):
    advisor = Advisor(key)
    jobs = [each if each.gpu == key else on_gpu(each, advisor.card) for each in profiles]
    return [in_page_words(each) for each in basis_sentences(advisor.recommend(jobs))]


@pytest.mark.parametrize("words", list(DESCRIBED))
def test_each_description_of_a_job_is_named(words):
    assert any(words in each for each in sentences(shelf.GPU, TRACED, DESCRIBED[words]))


@pytest.mark.parametrize("key", list(known_gpus()))
def test_on_every_gpu_the_basis_is_in_words_of_the_page(key):
    shown = sentences(key, *DESCRIBED.values())
    assert any("Host" in each for each in shown)
    assert not any("--" in re.sub("`advisor profile [^`]+`", "", each) for each in shown)
    assert any("estimated" in each.lower() for each in shown) == (key != shelf.GPU)
