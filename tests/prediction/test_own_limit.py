"""Under limits that differ a job whose own limit is raised never slows, whatever its mates have."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.surrogate_fit import with_surrogate
from advisor.prediction.mix_pace import step_intervals
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import surrogate_predictor
from advisor.sharing import Mps
from advisor.workload.files import MODEL_FILE
from tests import shelf

H200 = gpu("h200-141gb")
PROFILES = list(shelf.PROFILES.values())[:3]
LIMITS = st.floats(2, 100)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    fitted = load_model(folder / "models" / MODEL_FILE)
    return with_surrogate(fitted, {H200: PROFILES}, lessons=250)


@pytest.fixture(scope="module")
def without_surrogate(model):
    return replace(model, distilled=None)


def steps(model, profiles, limits):
    found = step_intervals(profiles, Mps(tuple(limits)), H200, model)
    return [(each.p05, each.p50, each.p95) for each in found]


def never_slows(model, profiles, limits, job, raised):
    higher = [raised if at == job else limit for at, limit in enumerate(limits)]
    before, after = (steps(model, profiles, each)[job] for each in (limits, higher))
    return all(new <= old * (1 + 1e-12) for old, new in zip(before, after, strict=True))


# Three times this, divided by three, is another number.
@example(
    kinds=[2, 2, 2, 0],
    limits=[80.01969368521361, *[87.08859226833144] * 3],
    raised=87.08859226833144,
)
@given(
    kinds=st.lists(st.integers(0, 2), min_size=2, max_size=4),
    limits=st.lists(LIMITS, min_size=4, max_size=4),
    raised=LIMITS,
)
def test_raising_a_jobs_own_limit_never_slows_it(model, kinds, limits, raised):
    own, *mates = limits[: len(kinds)]
    low, high = sorted((own, raised))
    assert never_slows(model, [PROFILES[kind] for kind in kinds], [low, *mates], 0, high)


@given(degree=st.integers(2, 3), same=LIMITS, raised=LIMITS, job=st.integers(0, 1))
def test_nor_where_all_limits_were_the_same_or_come_to_be(model, degree, same, raised, job):
    low, high = sorted((same, raised))
    limits = [low if at == job else same for at in range(degree)]
    assert never_slows(model, PROFILES[:degree], limits, job, high)


@given(limits=st.lists(LIMITS, min_size=3, max_size=3), raised=LIMITS)
def test_nor_without_a_distilled_predictor(without_surrogate, limits, raised):
    own, *mates = limits
    low, high = sorted((own, raised))
    assert never_slows(without_surrogate, PROFILES, [low, *mates], 0, high)


@given(profile=st.sampled_from(PROFILES), limit=LIMITS, raised=LIMITS)
def test_nor_once_its_mates_have_left(model, profile, limit, raised):
    low, high = sorted((limit, raised))
    assert never_slows(model, [profile], [low], 0, high)


def test_a_limit_that_binds_costs_much(model):
    busy = max(PROFILES, key=lambda each: each.busy_share)
    few, many = (steps(model, [busy, *PROFILES[:1]], [own, 50])[0][1] for own in (5, 100))
    assert few > 2 * many


def test_the_order_of_the_jobs_says_nothing(model):
    limits = [20.0, 45.0, 80.0]
    one = steps(model, PROFILES, limits)
    other = steps(model, PROFILES[::-1], limits[::-1])
    for job, same in zip(one, other[::-1], strict=True):
        assert same == pytest.approx(job, rel=1e-9)


def test_copies_with_the_same_limit_fare_alike(model):
    first, _, second = steps(model, [PROFILES[0], PROFILES[1], PROFILES[0]], [30, 60, 30])
    assert first == second


@pytest.mark.parametrize("mates", [(40.0, 40.0), (30.0, 50.0)])
def test_a_limit_a_little_off_its_mates_mean_changes_little(model, mates):
    at, below, above = (steps(model, PROFILES, [own, *mates])[0] for own in (40, 39.999, 40.001))
    assert below == pytest.approx(at, rel=1e-3)
    assert above == pytest.approx(at, rel=1e-3)


@given(limit=LIMITS, degree=st.integers(2, 3))
def test_nor_when_it_is_the_last_limit_to_go(model, limit, degree):
    assert never_slows(model, PROFILES[:degree], [limit, *[100.0] * (degree - 1)], 0, 100.0)


@given(kinds=st.lists(st.integers(0, 2), min_size=2, max_size=4))
def test_limits_that_take_nothing_are_no_limits(model, kinds):
    jobs = [PROFILES[kind] for kind in kinds]
    idle, none = Mps((100.0,) * len(jobs)), Mps()
    assert step_intervals(jobs, idle, H200, model) == step_intervals(jobs, none, H200, model)
    estimated_s = surrogate_predictor(jobs, H200, model).steps([idle, none])
    assert estimated_s[0] == pytest.approx(estimated_s[1])
    predictor = Predictor(H200, model)
    found = [predictor.predict(jobs, each) for each in (idle, none)]
    assert found[0].jobs == found[1].jobs
    assert found[0].power_w == found[1].power_w


def test_equal_limits_are_replayed_as_they_are_and_ends_lie_around_the_middle(model):
    for limits in ([40.0, 40.0], [40.0, 70.0], [10.0, 100.0]):
        assert all(
            low <= middle <= high for low, middle, high in steps(model, PROFILES[:2], limits)
        )
