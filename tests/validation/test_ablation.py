import pytest

from advisor.gpu.catalogue import gpu
from advisor.prediction.fit import fit
from advisor.validation.ablation import ablation_rows, ablations
from advisor.validation.selection import select
from tests.validation import campaign

H200 = gpu("h200-141gb")


@pytest.fixture(scope="module")
def found():
    profiles, runs = campaign.PROFILES, campaign.campaign()
    model = fit(profiles, runs, H200)
    return ablations(profiles, runs, select(profiles, runs, H200).scored, H200, model)


def test_every_part_has_a_line_and_the_first_has_all_of_them(found):
    rows = ablation_rows(found)
    assert rows[0][0] == "nothing"
    assert rows[-1][0] == "the whole regression"
    assert len({row[0] for row in rows}) == len(rows)
    assert all(len(row) == 4 for row in rows)


def test_without_the_regression_runs_that_are_slower_than_replayed_are_missed_by_more(found):
    everything, nothing_learnt = found[0].mape, found[-1].mape
    assert all(nothing_learnt[mode] > everything[mode] for mode in everything)
