"""Gavel's simulator and ours on one trace, if its files are on this machine."""

import pytest

from research import gavel
from research.files import ROOT

DATA = ROOT.parent / "shared" / "data" / "gavel"


@pytest.mark.skipif(not DATA.is_dir(), reason="others' measurements are not on this machine")
def test_each_policy_has_the_outcome_of_gavel_within_some_per_cent(monkeypatch):
    rows = [row for row in gavel.csv_rows(DATA / "reference.csv") if row["jobs"] == "300"]
    reading = gavel.csv_rows
    monkeypatch.setattr(
        gavel, "csv_rows", lambda path: rows if path.name == "reference.csv" else reading(path)
    )
    outcomes = list(gavel.compared(DATA))
    assert {each["policy"] for each in outcomes} == {*gavel.POLICIES}
    for each in outcomes:
        for name, most in (("mean_h", 0.02), ("makespan_h", 0.02), ("p99_h", 0.06)):
            reference, ours = each[name]
            assert ours == pytest.approx(reference, rel=most), (each["policy"], name)
