"""Models fitted before, by another test, process or session: a fit takes seconds.

A model is found by what it was fitted to, by all sources of the package, by the versions of the
libraries it is computed with and by the processor that this was told to compute for. Tests of
fitting call `fit` itself.
"""

import os
import sys
from fcntl import LOCK_EX, flock
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import time

import pytest

from advisor.files.writing import record_line, write_whole
from advisor.learn import fit as fit_model
from advisor.learn import surrogate_fit
from advisor.learn.observations import MeasuredGpu
from advisor.prediction.model import load_model, model_text
from research import evaluate

_ROOT = Path(__file__).resolve().parents[1]
_FOLDER = _ROOT / ".pytest_cache" / "fitted"
_LIBRARIES = ("numba", "numpy", "optuna", "scikit-learn", "scipy")

_KEPT_S = 7 * 24 * 3600

_known = {}
# Taken before any fixture replaces it, which would wait for its own lock.
_FIT_AGAIN = evaluate.model_without


def fit(profiles, runs, gpu):
    """As `advisor.learn.fit.fit` of one GPU, made once."""
    runs = tuple(runs)
    given = ("fit", gpu.key, *_profiles(profiles.values()), *map(record_line, runs))
    return _once(given, lambda: fit_model.fit([MeasuredGpu(gpu, profiles, runs)]))


def with_surrogate(model, profiles, gpu, lessons):
    """As `advisor.learn.surrogate_fit.with_surrogate`, made once."""
    given = ("distilled", gpu.key, model_text(model), *_profiles(profiles), str(lessons))
    return _once(
        given, lambda: surrogate_fit.with_surrogate(model, {gpu: profiles}, lessons=lessons)
    )


@pytest.fixture(scope="session", autouse=True)
def folds_fitted_once():
    """Wherever this is imported, evaluation in this process asks for no model twice."""

    def model_without(families, chosen, playback):
        runs = map(record_line, chosen.runs)
        names = ",".join(sorted(families))
        given = ("without", names, chosen.gpu.key, *_profiles(chosen.profiles.values()), *runs)
        return _once(given, lambda: _FIT_AGAIN(families, chosen, playback))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "model_without", model_without)
        yield


def _once(given, make):
    key = sha256("\n".join((_sources(), *given)).encode()).hexdigest()
    if key not in _known:
        _known[key] = _kept(_FOLDER / f"{key}.json", make)
    return _known[key]


def _kept(path, make):
    """Return the model in `path`; under a lock `make` puts it there the first time."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not path.is_file():
            _forget()
            write_whole(path, model_text(make()))
    return load_model(path)


def _forget():
    """Remove what was fitted by sources of long ago."""
    for path in _FOLDER.iterdir():
        if path.stat().st_mtime < time() - _KEPT_S:
            path.unlink(missing_ok=True)


def _profiles(profiles):
    return map(record_line, profiles)


@cache
def _sources():
    found = sha256(f"{sys.version} {os.environ.get('OPENBLAS_CORETYPE')}".encode())
    for name in _LIBRARIES:
        found.update(f"{name} {version(name)}\n".encode())
    package = _ROOT / "advisor"
    for path in sorted(each for each in package.rglob("*") if each.suffix in {".py", ".json"}):
        found.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return found.hexdigest()
