from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.validate.selection import select
from research.ablation import HEADINGS, ablation_rows, ablations
from tests.fitted import fit
from tests.research.test_profiling_time import took
from tests.validate import campaign

H200 = gpu("h200-141gb")


@pytest.fixture(scope="module")
def found(model):
    profiles, runs = campaign.PROFILES, campaign.campaign()
    scored = select(profiles, runs, H200).scored
    return ablations(MeasuredGpu(H200, profiles, runs), scored, model, ReplayCache())


@pytest.fixture(scope="module")
def model():
    return fit(campaign.PROFILES, campaign.campaign(), H200)


def test_every_part_has_a_line_and_the_first_has_all_of_them(found):
    rows = ablation_rows(found)
    assert rows[0][0] == "nothing"
    assert rows[-1][0] == "the whole regression"
    assert len({row[0] for row in rows}) == len(rows)
    assert {len(row) for row in rows} == {len(HEADINGS)}


def test_where_no_profile_recorded_its_time_no_part_has_seconds(found):
    assert {row[-1] for row in ablation_rows(found)} == {"-"}


def test_a_part_that_must_be_measured_shows_the_median_of_the_seconds_it_took(model):
    runs = campaign.campaign()
    scored = select(campaign.PROFILES, runs, H200).scored
    profiles = {
        name: replace(each, took=took(float(number), 2.0) if number < 3 else None)
        for number, (name, each) in enumerate(campaign.PROFILES.items())
    }
    rows = ablation_rows(ablations(MeasuredGpu(H200, profiles, runs), scored, model, ReplayCache()))
    seconds = {row[0]: row[-1] for row in rows if row[-1] != "-"}
    assert seconds == {
        "GPM counters": "0.25", "MPS probe": "3.00", "what its kernels are like": "2.00",
    }  # fmt: skip


def test_without_the_regression_runs_that_are_slower_than_replayed_are_missed_by_more(found):
    everything, nothing_learnt = found[0].mape, found[-1].mape
    assert all(nothing_learnt[mode] > everything[mode] for mode in everything)
