"""JSON Schemas of files and answers, against shipped files and real answers."""

import csv
import json
import tomllib
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from advisor.cli import main
from advisor.files.writing import record_line
from advisor.schemas import schema_document, schema_names
from advisor.workload.minimal_profile import minimal_text
from tests import synthetic

ROOT = Path(__file__).parents[1]


@cache
def validator(name):
    return Draft202012Validator(schema_document(name))


def problems(name, document):
    """Where `document` is not what the schema of that `name` describes."""
    errors = validator(name).iter_errors(document)
    return [f"{each.json_path}: {each.message:.200}" for each in errors]


def shortened(node):
    """The same document with lists of at most 5 entries: traces have thousands."""
    if isinstance(node, dict):
        return {key: shortened(inner) for key, inner in node.items()}
    return [shortened(inner) for inner in node[:5]] if isinstance(node, list) else node


@pytest.mark.parametrize("name", schema_names())
def test_each_schema_is_valid_and_has_an_explanation(name, capsys):
    with pytest.raises(SystemExit) as end:
        main(["init", "--schema", name])
    assert not end.value.code
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(document)
    assert document["description"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("profiles/*/*.json")), ids=lambda path: path.stem)
def test_the_shipped_profiles_follow_their_schema(path):
    assert problems("profile", shortened(json.loads(path.read_bytes()))) == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("profiles/*/runs/*.jsonl")), ids=lambda path: path.stem
)
def test_the_shipped_runs_follow_their_schema(path):
    with path.open() as lines:
        assert problems("run", json.loads(next(lines))) == []


def test_the_templates_follow_their_schemas():
    folder = ROOT / "advisor/workload/templates"
    for kind in ("jobs", "campaign"):
        document = tomllib.loads((folder / f"{kind}.toml").read_text())
        assert problems(kind, json.loads(json.dumps(document))) == []
    for row in csv.DictReader((folder / "trace.csv").read_text().splitlines()):
        cells = {name: cell if name == "job" else float(cell) for name, cell in row.items()}
        assert problems("trace", cells) == []


def test_times_may_be_words_and_a_misspelt_field_is_refused():
    job = {"profile": "a", "deadline_s": "2h", "protect": "10 %", "command": "python train.py"}
    assert problems("jobs", {"job": [job]}) == []
    assert problems("jobs", {"job": [job | {"epoch": 3}]})


def test_bare_numbers_follow_their_schema():
    numbers = json.loads(minimal_text(synthetic.numbers(power_w=None)))
    assert problems("numbers", numbers) == []
    more = {"sm_active": 0.6, "dram_active": None, "step_s_under_limit": {"50": 0.14}}
    assert problems("numbers", numbers | more) == []
    assert problems("numbers", numbers | {"step_s_under_limit": {"50": "fast"}})


def test_a_profile_with_two_moments_follows_its_schema():
    profile = json.loads(record_line(synthetic.profile()))
    moments = [{"date": "2026-11-21T10:00:00+00:00", "step_s": 0.01, "host_check_s": None}] * 2
    assert problems("profile", shortened(profile | {"moments": moments})) == []
    assert problems("profile", shortened(profile | {"moments": [{"step_s": "fast"}]}))


@pytest.mark.parametrize(("name", "listed"), [("plans", "plan"), ("zzz", "calibration")])
def test_an_unknown_schema_names_those_that_there_are(capsys, name, listed):
    with pytest.raises(SystemExit) as end:
        main(["init", "--schema", name])
    assert (end.value.code, listed in capsys.readouterr().err) == (2, True)
