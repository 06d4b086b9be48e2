from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.drawn_mixes import draw
from advisor.prediction.fit.surrogate_fit import _NOISE, _SURE, fitted_surrogate, with_surrogate
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import load_model, model_text
from advisor.prediction.surrogate import MixBatch, columns
from advisor.prediction.surrogate_answers import surrogate_predictor
from advisor.prediction.surrogate_features import LIMIT_GRID, summaries
from advisor.sharing import SHARED_MODES, Mps, Naive
from advisor.workload.files import MODEL_FILE
from tests import shelf

H200 = gpu(shelf.GPU)
PROFILES = list(shelf.PROFILES.values())[:3]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    return load_model(folder / "models" / MODEL_FILE)


@pytest.fixture(scope="module")
def model(plain):
    return with_surrogate(plain, {H200: PROFILES}, lessons=250)


@pytest.fixture(scope="module")
def jobs(model):
    return summaries(PROFILES, H200, model.of(H200).physics)


def crowds(rows, limits=None):
    rows = np.array(rows)
    return MixBatch(rows, np.full(rows.shape, 100.0) if limits is None else np.array(limits))


def test_it_answers_about_what_the_predictor_answers(model):
    sharings = [Naive(), Mps(), Mps((36.0, 36.0, 36.0)), Mps((20.0, 57.0, 100.0))]
    estimated_s = surrogate_predictor(PROFILES, H200, model).steps(sharings)
    exact_s = [[each.p50 for each in step_intervals(PROFILES, sharing, H200, model)]
               for sharing in sharings]  # fmt: skip
    assert np.abs(np.log(estimated_s / np.array(exact_s))).mean() < 0.15


def test_its_surrogate_is_the_penalised_least_squares_of_scikit_learns_kernel(jobs, model):
    from sklearn.gaussian_process.kernels import RationalQuadratic

    def kernel(some, others):
        parts = (slice(-3), slice(-3, None))
        alike = [RationalQuadratic(1.0, 1.0)(some[:, each], others[:, each]) for each in parts]
        return alike[0] * alike[1]

    asked = crowds([[0, 1, 2], [1, 1, 0], [2, 2, 2], [0, 2, 1]])
    x = columns(jobs, asked).reshape(12, -1)
    y = np.sin(np.arange(12.0)) + 2
    surrogate = fitted_surrogate(x, y, "mps")
    points, scaled = np.array(surrogate.points), x / np.array(surrogate.scale)
    penalties = [np.sqrt(_NOISE) * np.linalg.cholesky(kernel(points, points)).T,
                 np.sqrt(_SURE) * np.eye(len(points))]  # fmt: skip
    wanted = np.concatenate([y - y.mean(), np.zeros(2 * len(points))])
    weights = np.linalg.lstsq(np.concatenate([kernel(scaled, points), *penalties]), wanted)[0]
    expected = np.maximum(kernel(scaled, points) @ weights + y.mean(), 0).reshape(4, 3)
    known = replace(model.distilled, surrogates={"mps": surrogate})
    steps_s = known.steps(jobs, asked, "mps")
    assert np.log(steps_s / jobs.step_s[asked.jobs]) == pytest.approx(expected, abs=1e-6)


def test_what_is_learnt_hardly_moves_with_a_rounding_error(jobs):
    asked = crowds([list(row) for row in product(range(3), repeat=4)])
    x = columns(jobs, asked).reshape(4 * len(asked.jobs), -1)
    y = np.log1p(x.sum(axis=1) ** 2) / 9
    random = np.random.default_rng(3)
    learnt_of = [fitted_surrogate(each, y, "mps-limits")
                 for each in (x, x * (1 + 1e-15 * random.normal(size=x.shape)))]  # fmt: skip
    one, other = (np.array(each.weights) for each in learnt_of)
    assert np.abs(one - other).max() <= 1e-6 * np.abs(one).max()


@given(
    limits=st.lists(st.floats(1, 100), min_size=3, max_size=3),
    raised=st.floats(0, 99),
    job=st.integers(0, 2),
)
def test_a_job_whose_limit_is_raised_while_its_mates_keep_theirs_never_slows(
    model, jobs, limits, raised, job
):
    higher = list(limits)
    higher[job] = min(100.0, limits[job] + raised)
    asked = crowds([[0, 1, 2]] * 2, [limits, higher])
    before_s, after_s = model.distilled.steps(jobs, asked, "mps-limits")[:, job]
    assert after_s <= before_s * (1 + 1e-5)


@pytest.mark.parametrize("mode", SHARED_MODES)
def test_the_order_of_the_jobs_says_nothing_and_copies_fare_alike(model, jobs, mode):
    limits = [[28.0, 57.0, 28.0], [57.0, 28.0, 28.0]]
    one, other = model.distilled.steps(jobs, crowds([[0, 1, 0], [1, 0, 0]], limits), mode)
    assert one[0] == pytest.approx(one[2], rel=1e-6)
    assert other[[1, 0, 2]] == pytest.approx(one, rel=1e-5)


@pytest.mark.parametrize("mode", SHARED_MODES)
def test_no_job_gets_faster_than_alone_by_sharing(model, jobs, mode):
    asked = crowds([[0, 1, 2], [0, 0, 0], [1, -1, -1], [2, 1, -1]])
    there = asked.jobs >= 0
    steps_s = model.distilled.steps(jobs, asked, mode)
    assert (steps_s[there] >= jobs.step_s[asked.jobs[there]] * (1 - 1e-6)).all()
    assert np.isnan(steps_s[~there]).all()


@pytest.mark.parametrize("mode", SHARED_MODES)
def test_a_job_by_itself_takes_what_its_own_limit_leaves_it(model, jobs, mode):
    limits = [[100.0], [28.0]] if mode == "mps-limits" else [[100.0]] * 2
    free_s, limited_s = model.distilled.steps(jobs, crowds([[1]] * 2, limits), mode)[:, 0]
    assert free_s == pytest.approx(jobs.step_s[1])
    slower = np.exp(jobs.limited[1, LIMIT_GRID.index(28), 0]) if mode == "mps-limits" else 1.0
    assert limited_s == pytest.approx(jobs.step_s[1] * slower)


def test_empty_places_change_no_answer(model, jobs):
    full = model.distilled.steps(jobs, crowds([[0, 2]]), "mps")[0]
    wide = model.distilled.steps(jobs, crowds([[-1, 0, -1, 2]]), "mps")[0]
    assert wide[[1, 3]] == pytest.approx(full, rel=1e-5)


@pytest.mark.parametrize("mode", SHARED_MODES)
@pytest.mark.parametrize("rows", [np.empty((0, 3), dtype=int), [[-1, -1, -1]]])
def test_of_no_job_nothing_is_said(model, jobs, mode, rows):
    assert np.isnan(model.distilled.steps(jobs, crowds(rows), mode)).all()


def test_thousands_of_mixes_are_answered_as_each_of_them_alone(model, jobs):
    random = np.random.default_rng(1)
    limits = random.choice(np.array(LIMIT_GRID, dtype=float), (1000, 3))
    asked = crowds([[0, 1, 2]] * 1000, limits)
    together = model.distilled.steps(jobs, asked, "mps-limits")
    alone = model.distilled.steps(jobs, asked.rows(slice(777, 778)), "mps-limits")
    assert together[777] == pytest.approx(alone[0], rel=1e-5)


def test_profiles_without_trace_or_counters_get_no_rough_answer(model):
    first, second, _ = PROFILES
    assert surrogate_predictor([first, second], H200, model) is not None
    assert surrogate_predictor([first, replace(second, trace=None)], H200, model) is None
    assert surrogate_predictor([first, replace(second, counters=None)], H200, model) is None


def test_a_model_that_was_not_distilled_gives_no_rough_answer(plain):
    assert surrogate_predictor(PROFILES, H200, plain) is None


def test_nothing_is_distilled_from_profiles_without_traces(plain):
    bare = [replace(each, trace=None) for each in PROFILES]
    assert with_surrogate(plain, {H200: bare}) is plain


def test_only_modes_that_runs_taught_are_with_surrogate(plain):
    taught = replace(plain, corrections={"naive": plain.corrections["naive"]})
    assert set(with_surrogate(taught, {H200: PROFILES}, lessons=20).distilled.surrogates) == {
        "naive"
    }


def test_the_same_mixes_are_drawn_each_time():
    assert draw(50, 9, SHARED_MODES) == draw(50, 9, SHARED_MODES)
    assert {len(lesson.jobs) for lesson in draw(200, 9, SHARED_MODES)} == set(range(1, 9))


def test_a_file_keeps_what_was_with_surrogate(model, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(model_text(model))
    assert load_model(path).distilled == model.distilled


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ("busy",)},
        {"scale": (0.0,) * 24},
        {"scale": (5e-324,) * 24},
        {"points": ((1e300,) * 24,), "weights": (1.0,)},
        {"scale": (1.0,)},
        {"points": ((0.0,),)},
        {"weights": ()},
    ],
)
def test_a_surrogate_whose_parts_do_not_fit_is_refused(model, wrong):
    with pytest.raises(InvalidInput):
        replace(model.distilled.surrogates["mps"], **wrong)
