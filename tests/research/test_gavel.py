"""Gavel's simulator and ours on one trace, if its files are on this machine."""

import pytest

from research import gavel
from research.files import ROOT

DATA = ROOT.parent / "shared" / "data" / "gavel"


@pytest.mark.skipif(not DATA.is_dir(), reason="others' measurements are not on this machine")
@pytest.mark.parametrize(
    "policy", ["fifo", pytest.param("max_min_fairness", marks=pytest.mark.exhaustive)]
)
def test_a_policy_of_the_same_rule_has_the_outcome_of_gavel_within_some_per_cent(
    monkeypatch, policy
):
    reading = gavel.csv_rows
    rows = [
        row
        for row in reading(DATA / "reference.csv")
        if row["jobs"] == "300" and row["policy"] == policy
    ]
    monkeypatch.setattr(
        gavel, "csv_rows", lambda path: rows if path.name == "reference.csv" else reading(path)
    )
    (outcome,) = gavel.compared(DATA)
    for name, most in (("mean_h", 0.006), ("makespan_h", 0.006), ("p99_h", 0.05)):
        reference, ours = outcome[name]
        assert ours == pytest.approx(reference, rel=most), name
