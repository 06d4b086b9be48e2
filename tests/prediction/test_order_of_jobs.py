"""The order in which jobs are named says nothing."""

from dataclasses import replace
from itertools import permutations

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.replayed_kernels import recorded
from advisor.sharing import parse_sharing
from advisor.workload.store import load_profiles, model_path

H200 = gpu("h200-141gb")
NAMES = ("dlrm-1gb-bs16384", "lstm-wikitext-bs32", "gru-speech-bs64")
PROFILES = [load_profiles(H200.key)[name] for name in NAMES]
MODEL = load_model(model_path(None))


@pytest.mark.parametrize(
    "sharing", ["naive", "mps", "mps=30,40,50", "mps/priority=0,1,1", "mps=60,40,50/priority=1,0,1"]
)
def test_each_job_is_as_fast_wherever_it_stands_in_the_question(sharing):
    named, predictor = parse_sharing(sharing), Predictor(H200, MODEL)
    before = predictor.predict(PROFILES, named).jobs
    for order in permutations(range(len(NAMES))):
        limits, priorities = (
            tuple(each[at] for at in order if each) for each in (named.limits, named.priorities)
        )
        moved = replace(named, limits=limits, priorities=priorities) if named.under_mps else named
        mix = predictor.predict([PROFILES[at] for at in order], moved)
        for at, job in zip(order, mix.jobs, strict=True):
            assert job.step_s.p50 == pytest.approx(before[at].step_s.p50, rel=1e-9)
            assert job.step_s.p95 == pytest.approx(before[at].step_s.p95, rel=1e-9)


def test_kernels_that_were_replayed_are_those_of_the_job_that_they_are_said_to_be_of():
    physics = MODEL.of(H200).physics
    there, back = (
        [
            (profiles[each.job].name, each.kind, each.start_s, each.end_s)
            for each in recorded(profiles, parse_sharing("mps"), H200, physics)
        ]
        for profiles in (PROFILES, PROFILES[::-1])
    )
    assert {name for name, *_ in there} == set(NAMES)
    assert there == back
