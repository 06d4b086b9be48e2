"""What a command must not import or do; the time is measured in benchmarks."""

import subprocess
import sys

import pytest

from advisor.prediction.engine_file import loops

HEAVY = {"torch", "timm", "pandas", "sklearn", "streamlit", "altair", "numba", "pydantic"}


def imported_by(*words):
    code = (
        "import sys\nfrom advisor.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("words", [["--help"], ["recommend", "--help"], ["validate", "--help"]])
def test_help_imports_nothing_heavy(words):
    # typer itself brings pydantic where a command has options.
    assert not imported_by(*words) & (HEAVY - {"pydantic"} | {"numpy", "rich"})


def test_ranking_imports_neither_torch_nor_what_pages_fitting_and_compiling_need(
    measured, monkeypatch
):
    monkeypatch.setenv("ADVISOR_PROFILES", str(measured / "profiles"))
    monkeypatch.setenv("ADVISOR_MODELS", str(measured / "models"))
    loops()  # compiled once
    assert not imported_by("recommend") & (HEAVY - {"pydantic"})


def test_nobody_looks_for_garbage_in_a_process_that_ends():
    code = (
        "import atexit, gc\natexit.register(lambda: print(gc.get_freeze_count()))\n"
        "from advisor.__main__ import main; main()"
    )
    words = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) > 0


def test_the_package_itself_imports_nothing():
    code = "import sys, advisor; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("advisor")} == {"advisor"}
