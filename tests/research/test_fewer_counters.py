import numpy as np
import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.utilisation_model import seen_by_driver
from advisor.validate.evaluate import evaluate
from advisor.validate.selection import select
from research.fewer_counters import (
    fewer_rows,
    mean_width,
    seen,
    seen_by_driver_alone,
    widening,
)
from tests.fitted import fit
from tests.validate import campaign

H200 = gpu("h200-141gb")
PROFILES = campaign.PROFILES


def _bare(runs, profiles=PROFILES):
    model = fit(PROFILES, runs, H200)
    return seen_by_driver_alone(profiles, runs, select(profiles, runs, H200).scored, model, H200)


@pytest.fixture(scope="module")
def runs():
    return campaign.campaign()


@pytest.fixture(scope="module")
def bare(runs):
    return _bare(runs)


def test_every_scored_job_is_predicted_once_beside_what_was_measured(runs, bare):
    assert [each.run.id for each in bare] == [run.id for run in runs]
    for each in bare:
        steps = [tenant.step_s for tenant in each.run.tenants]
        assert [job.measured_s for job in each.jobs] == steps


def test_nothing_but_what_the_driver_shows_is_looked_at(runs, bare):
    stripped = {name: seen_by_driver(profile) for name, profile in PROFILES.items()}
    again = _bare(runs, stripped)
    assert [each.jobs for each in again] == [each.jobs for each in bare]


def test_a_family_is_predicted_by_what_never_saw_a_run_with_it(bare):
    """Its own runs, were they five times as slow, change no prediction of its jobs."""
    slow = _bare(campaign.campaign(slow_family="cait"))
    for before, after in zip(bare, slow, strict=True):
        for one, other in zip(before.jobs, after.jobs, strict=True):
            if one.family == "cait":
                assert other.predicted_s == one.predicted_s


def test_both_profiles_have_a_line_a_mode_and_words_say_why(runs, bare):
    whole = evaluate(PROFILES, runs, H200).runs
    both = seen(whole, bare)
    rows = fewer_rows(both)
    assert [row[:2] for row in rows] == [
        (mode, profile)
        for mode in ("naive", "MPS", "MPS limits")
        for profile in ("whole", "nvidia-smi alone")
    ]
    said = widening(both)
    assert len(said) == 3
    assert "how many SMs" in said[1]
    assert fewer_rows(seen(whole, ())) == rows[::2]
    assert widening(seen(whole, ())) == []


def test_the_width_of_an_interval_is_a_share_of_the_predicted_step(bare):
    jobs = [job for run in bare for job in run.jobs]
    widths = [(j.predicted_s.p95 - j.predicted_s.p05) / j.predicted_s.p50 for j in jobs]
    assert mean_width(jobs) == pytest.approx(np.mean(widths))
