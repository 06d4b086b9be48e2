from dataclasses import asdict, replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.interval import Interval
from advisor.prediction.physics import Physics
from advisor.prediction.replay import TimeSlicing
from advisor.validate.predicted_and_measured import RunComparison, compared_job
from advisor.workload.store import load_profiles
from advisor.workload.stored_runs import load_runs
from research.power_score import PowerData, power_scores

H200 = gpu("h200-141gb")
PHYSICS = Physics(
    packing=0.45,
    slicing=TimeSlicing(slice_s=1e-3, patience_s=0.03e-3, switch_s=0.2e-3),
    ceded=0.05,
    bandwidth=0.5,
)
PLAYBACK = ReplayCache()  # what replay says of a run is the same in every test


def compared(run, profiles, off):
    """`run` as if each step had been predicted `off` times as long as it was."""
    return RunComparison(
        run,
        tuple(
            compared_job(each, profiles[each.workload.name], Interval(*[off * each.step_s] * 3), {})
            for each in run.tenants
        ),
    )


@pytest.fixture(scope="module")
def campaign():
    profiles = load_profiles(H200.key)
    runs = [
        run for run in load_runs(H200.key)
        if run.shows_pace and all(each.workload.name in profiles for each in run.tenants)
    ]  # fmt: skip
    known = {run.id: run for run in runs}
    repeats = [(known[run.repeats], run) for run in runs if run.repeats in known][::12]
    wanted = {run.id for pair in repeats for run in pair}
    chosen = [run for at, run in enumerate(runs) if at % 16 == 0 or run.id in wanted]
    return profiles, chosen, [run for run in chosen if run.purpose == "drawn"], repeats


def scores(campaign, off, **changes):
    profiles, runs, drawn, repeats = campaign
    scored = [compared(run, profiles, off) for run in drawn]
    data = PowerData(profiles=profiles, runs=runs, scored=scored, repeats=repeats, gpu=H200,
                     physics=PHYSICS, playback=PLAYBACK)  # fmt: skip
    return {(row.mode, row.pace): row for row in power_scores(replace(data, **changes))}


@pytest.fixture(scope="module")
def right(campaign):
    """The scores at a perfect pace."""
    return scores(campaign, off=1.0)


def test_recorded_runs_of_families_never_seen_are_met_within_what_is_promised(right):
    assert {mode for mode, _ in right} == {"naive", "mps", "mps-limits"}
    for row in right.values():
        assert row.n > 20
        assert row.power_mape < 0.06
        assert max(row.gract_error, row.smact_error) < 0.05
        assert row.power_coverage90 > 0.85


def test_a_perfect_pace_scores_nearly_as_the_measured_one_and_a_wrong_one_worse(campaign, right):
    wrong = scores(campaign, off=1.5)
    for mode in ("naive", "mps", "mps-limits"):
        measured, predicted = (asdict(right[mode, pace]) for pace in ("measured", "predicted"))
        assert measured | {"pace": ""} == pytest.approx(predicted | {"pace": ""}, abs=0.02)
        assert asdict(wrong[mode, "measured"]) == measured
        assert wrong[mode, "predicted"].power_mape > right[mode, "predicted"].power_mape


def test_repeats_say_what_no_prediction_can_get_below_and_none_where_there_are_none(
    campaign, right
):
    profiles, _, drawn, _ = campaign
    few = drawn[::3]
    quiet = scores((profiles, few, few, ()), off=1.0)
    assert 0 < right["mps", "measured"].power_noise < 0.1
    assert quiet["mps", "measured"].power_noise is None
    assert quiet["mps", "measured"].gract_noise is None


def test_a_run_whose_power_was_not_measured_is_passed_over(campaign):
    profiles, runs, drawn, _ = campaign
    dark = [replace(run, power_w=None) for run in drawn[:10]]
    scored = [compared(run, profiles, 1.0) for run in dark]
    others = [run for run in runs if run.purpose != "drawn"][::5]
    assert scores(campaign, off=1.0, runs=[*others, *dark], scored=scored) == {}
