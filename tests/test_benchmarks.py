"""Each script of benchmarks/ finds what it imports; none is run."""

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_imports_what_is_there(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    assert runpy.run_path(str(path), run_name="imported")["__doc__"]
