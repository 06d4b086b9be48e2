"""Attaches the hook in a user's script, in each Python that it starts, from a folder on its path.

It waits until torch is imported there; then it runs the user's own sitecustomize, if it hides one.
"""

import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType

_FOLDER = str(Path(__file__).parent)


class _TorchFinder:
    done = False

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> object:
        if name != "torch" or self.done:
            return None
        self.done = True
        spec = find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_attach(module: ModuleType) -> None:
            execute(module)
            _attach()

        spec.loader.exec_module = execute_and_attach  # type: ignore[method-assign]
        return spec


def _attach() -> None:
    """Attach the hook; leave a file that shows it, or one with the reason why it failed."""
    name, text = "attached", ""
    try:
        from advisor_inside.hook import attach  # type: ignore[import-not-found]

        attach()
    except Exception as error:  # the script must run as without the hook
        name, text = "error", f"{type(error).__name__}: {error}"
    with suppress(OSError):
        Path(_FOLDER, name).write_text(text)


if "ADVISOR_HOOK" in os.environ:
    sys.meta_path.insert(0, _TorchFinder())  # type: ignore[arg-type]

_others = [path for path in sys.path if os.path.realpath(path or ".") != _FOLDER]
_spec = PathFinder.find_spec(__name__, _others)
if _spec is not None and _spec.loader is not None:
    sys.modules[__name__] = _own = module_from_spec(_spec)
    _spec.loader.exec_module(_own)
