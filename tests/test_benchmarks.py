"""Each script of benchmarks/ finds what it imports; none is run."""

import json
import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(BENCHMARKS.glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_imports_what_is_there(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    assert runpy.run_path(str(path), run_name="imported")["__doc__"]


def test_the_page_on_trials_shows_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "study_of_trials.py"), run_name="imported")
    page = (BENCHMARKS.parent / "docs" / "hyperparameter-search.md").read_text()
    assert "\n".join(script["compare"](BENCHMARKS / "study-of-trials")) in page


def test_the_page_on_files_shows_what_damaged_input_did(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "fuzz_readers.py"), run_name="imported")
    page = (BENCHMARKS.parent / "docs" / "files.md").read_text()
    assert script["table"](BENCHMARKS / "fuzzing" / "found.jsonl") in page


def test_the_page_on_runs_has_every_fault_that_was_drilled():
    page = (BENCHMARKS.parent / "docs" / "running-plans.md").read_text()
    drilled = (BENCHMARKS / "fault-drill" / "faults.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in drilled]
    assert all(each["kept"] for each in found)
    assert [each["fault"] for each in found if f"| {each['fault']} |" not in page] == []
