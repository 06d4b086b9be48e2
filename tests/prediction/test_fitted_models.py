import ast
from pathlib import Path

from advisor.hardware.catalogue import gpu
from advisor.prediction.model_file import load_model
from advisor.workload.files import MODEL_FILE
from tests import fitted
from tests.validate.campaign import PROFILES, campaign

GPU, RUNS = gpu("h200-141gb"), tuple(campaign())
MODEL = load_model(Path(__file__).parents[2] / "models" / MODEL_FILE)
PACKAGE = Path(__file__).parents[2] / "advisor"


def imported_by(path):
    """The files of ours that the file `path` imports, inside functions too."""
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
    names = {name for n in nodes for name in (n.module, *(f"{n.module}.{a.name}" for a in n.names))}
    files = (PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in sorted(names)
             if name.startswith("advisor."))  # fmt: skip
    return [file for file in files if file.is_file()]


def test_whatever_a_fit_imports_is_among_the_sources_by_which_models_are_known():
    seen, found = (
        set(),
        [PACKAGE / "prediction" / "fit" / f"{each}.py" for each in ("fit_model", "surrogate_fit")],
    )
    while found:
        path = found.pop()
        if path not in seen:
            seen.add(path)
            found += imported_by(path)
    sources = [PACKAGE / each for each in fitted.SOURCES]
    assert len(seen) > 20
    assert all(any(path.is_relative_to(each) for each in sources) for path in seen)


def test_a_model_is_fitted_again_where_sources_or_data_are_others(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(fitted, "_FOLDER", tmp_path)
    monkeypatch.setattr(fitted, "_known", {})
    monkeypatch.setattr(fitted.fit_model, "fit", lambda *given: made.append(given) or MODEL)
    for sources in ("one", "one", "other"):
        monkeypatch.setattr(fitted, "_sources", lambda sources=sources: sources)
        assert fitted.fit(PROFILES, RUNS, GPU) == MODEL
    assert len(made) == 2
    assert fitted.fit(PROFILES, RUNS[1:], GPU) == MODEL
    assert len(made) == 3
    fitted._known.clear()
    assert fitted.fit(PROFILES, RUNS, GPU) == MODEL
    assert len(made) == 3, "another process finds what this one wrote"
