"""The cheap estimate of the searches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.files.reading import MODEL_FILE
from advisor.hardware.gpus import gpu
from advisor.learn.surrogate_fit import with_surrogate
from advisor.prediction.mix_steps import surrogate_predictor
from advisor.prediction.model import load_model, model_text
from advisor.prediction.predictor import step_intervals
from advisor.prediction.surrogate import MixBatch
from advisor.sharing import Mps, Naive
from tests import shelf

H200 = gpu(shelf.GPU)
PROFILES = list(shelf.PROFILES.values())[:3]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    plain = load_model(folder / "models" / MODEL_FILE)
    return with_surrogate(plain, {H200: PROFILES}, lessons=250)


def test_it_answers_about_what_the_predictor_answers(model):
    sharings = [Naive(), Mps(), Mps((36.0, 36.0, 36.0)), Mps((20.0, 57.0, 100.0))]
    surrogate = surrogate_predictor(PROFILES, H200, model)
    limits = [np.array([each.limits or (100.0,) * 3]) for each in sharings]
    estimated_s = np.concatenate(
        [
            surrogate.distilled.steps(surrogate.jobs, MixBatch(np.arange(3)[None], row), each.mode)
            for each, row in zip(sharings, limits, strict=True)
        ]
    )
    exact_s = [
        [each.p50 for each in step_intervals(PROFILES, sharing, H200, model)]
        for sharing in sharings
    ]
    assert np.abs(np.log(estimated_s / np.array(exact_s))).mean() < 0.15


@given(st.lists(st.floats(1, 100), min_size=3, max_size=3), st.floats(0, 99), st.integers(0, 2))
def test_a_higher_limit_never_slows_its_job(model, limits, raised, job):
    higher = [min(100.0, limit + raised * (at == job)) for at, limit in enumerate(limits)]
    before_s, after_s = surrogate_predictor(PROFILES, H200, model).limited(
        np.array([limits, higher])
    )
    assert after_s[job] <= before_s[job] * (1 + 1e-5)


def test_a_file_keeps_it(model, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(model_text(model))
    assert load_model(path).distilled == model.distilled
