import numpy as np
import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.physics import replay_mix
from advisor.prediction.utilisation_model import seen_by_driver
from advisor.validate.evaluate import evaluate
from advisor.validate.selection import select
from research.fewer_counters import (
    BARE,
    NO_GPM,
    NO_PROBE,
    STRIPPED,
    UnseenFamilies,
    fewer_rows,
    mean_width,
    predicted_from_less,
    seen,
    watched,
    widening,
)
from tests.fitted import folds_fitted_once
from tests.validate import campaign

__all__ = ["folds_fitted_once"]

H200 = gpu("h200-141gb")
PROFILES = campaign.PROFILES


def _less(runs, profiles=PROFILES):
    by = UnseenFamilies(H200, evaluate(PROFILES, runs, H200).models, replay_mix)
    return predicted_from_less(profiles, select(profiles, runs, H200).scored, by)


@pytest.fixture(scope="module")
def runs():
    return campaign.campaign()


@pytest.fixture(scope="module")
def less(runs):
    return _less(runs)


def test_every_scored_job_is_predicted_once_beside_what_was_measured(runs, less):
    assert list(less) == [NO_GPM, NO_PROBE, BARE]
    for kind in less:
        assert [each.run.id for each in less[kind]] == [run.id for run in runs]
        for each in less[kind]:
            steps = [tenant.step_s for tenant in each.run.tenants]
            assert [job.measured_s for job in each.jobs] == steps


@pytest.mark.parametrize("kind", STRIPPED)
def test_nothing_but_what_such_a_profile_shows_is_looked_at(kind):
    strip = STRIPPED[kind]
    for profile in PROFILES.values():
        assert strip(strip(profile)) == strip(profile)


def test_nvidia_smi_alone_is_what_a_user_can_write_down(runs, less):
    stripped = {name: seen_by_driver(profile) for name, profile in PROFILES.items()}
    again = _less(runs, stripped)
    assert [each.jobs for each in again[BARE]] == [each.jobs for each in less[BARE]]
    known = watched(PROFILES[campaign.NAMES[0]])
    assert (known.trace, known.mps, known.provenance) == (None, None, None)
    assert known.counters.source == "nvml"


def test_a_family_is_predicted_by_what_never_saw_a_run_with_it(less):
    """Its own runs, were they five times as slow, change no prediction of its jobs."""
    slow = _less(campaign.campaign(slow_family="cait"))
    for kind in less:
        for before, after in zip(less[kind], slow[kind], strict=True):
            for one, other in zip(before.jobs, after.jobs, strict=True):
                if one.family == "cait":
                    assert other.predicted_s == one.predicted_s


def test_each_profile_has_a_line_a_mode_and_words_say_why(runs, less):
    whole = evaluate(PROFILES, runs, H200).runs
    found = seen(whole, less)
    rows = fewer_rows(found)
    assert [row[:2] for row in rows] == [
        (mode, profile)
        for mode in ("naive", "MPS", "MPS limits")
        for profile in ("whole", *STRIPPED)
    ]
    said = widening(found)
    assert len(said) == 3
    assert "how many SMs" in said[1]
    assert all(f"({kind})" in each for each in said for kind in STRIPPED)
    assert fewer_rows(seen(whole, {})) == rows[::4]
    assert widening(seen(whole, {})) == []


def test_the_width_of_an_interval_is_a_share_of_the_predicted_step(less):
    jobs = [job for run in less[BARE] for job in run.jobs]
    widths = [(j.predicted_s.p95 - j.predicted_s.p05) / j.predicted_s.p50 for j in jobs]
    assert mean_width(jobs) == pytest.approx(np.mean(widths))
