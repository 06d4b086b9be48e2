"""The claims of the studies are written down once each, with what would make them right."""

import csv
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

CLAIMS = tomllib.loads(files("advisor.validate").joinpath("study_claims.toml").read_text())
FACTS = Path(__file__).parents[3] / "shared" / "facts" / "study_facts.csv"


def _ids(part: str) -> list[str]:
    return [name for entry in CLAIMS[part] for name in entry["ids"]]


def test_each_row_is_a_claim_or_said_to_be_none_and_never_both():
    counted = Counter(_ids("claim") + _ids("unchecked"))
    assert set(counted.values()) == {1}


def test_each_claim_has_a_bound_and_a_tolerance():
    for claim in CLAIMS["claim"]:
        assert {"low", "high"} & claim.keys(), claim["ids"]
        assert claim["tolerance"] >= 0, claim["ids"]
        assert claim["says"], claim["ids"]


def test_no_row_of_the_studies_is_forgotten():
    if not FACTS.is_file():
        pytest.skip("the table of the studies' rows is not part of the project")
    with FACTS.open(newline="") as lines:
        rows = {row["id"] for row in csv.DictReader(lines)}
    assert rows == {*_ids("claim"), *_ids("unchecked")}
