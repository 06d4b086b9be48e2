"""Attaches the hook in a user's script, from a folder that is first on its PYTHONPATH.

Python imports it before the script, in each Python that the script starts too. It does nothing but
wait for torch to be imported there, so it starts no CUDA and costs those without torch nothing.
Where that folder shadows a sitecustomize of the user's, it runs that one.
"""

import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

_FOLDER = str(Path(__file__).parent)
# The oldest Python that can import the hook; this file itself is for any that is in use.
_OLDEST = (3, 10)


class _TorchFinder:
    """Finds torch as others would, and attaches to it when it has been imported."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> object:
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = find_spec("torch")
        if spec is not None and spec.loader is not None:
            _attach_after(spec)
        return spec


def _attach_after(spec: ModuleSpec) -> None:
    execute = spec.loader.exec_module  # type: ignore[union-attr]

    def executed(module: ModuleType) -> None:
        execute(module)
        if sys.version_info < _OLDEST:
            found, least = (".".join(map(str, each[:2])) for each in (sys.version_info, _OLDEST))
            _told(f"its Python is {found}, and steps are seen from {least} on")
            return
        try:
            from advisor.measure.hook import attach

            attach()
            Path(_FOLDER, "attached").touch()
        except Exception as error:  # the script must run as if nobody looked
            _told(f"{type(error).__name__}: {error}")

    spec.loader.exec_module = executed  # type: ignore[method-assign,union-attr]


def _told(why: str) -> None:
    """Leave word why the hook was not set."""
    with suppress(OSError):
        Path(_FOLDER, "error").write_text(why)


def _run_the_users_own() -> None:
    others = [each for each in sys.path if os.path.realpath(each or ".") != _FOLDER]
    spec = PathFinder.find_spec(__name__, others)
    if spec is not None and spec.loader is not None:
        sys.modules[__name__] = own = module_from_spec(spec)
        spec.loader.exec_module(own)


if "ADVISOR_HOOK" in os.environ:
    sys.meta_path.insert(0, _TorchFinder())  # type: ignore[arg-type]
_run_the_users_own()
