"""The folder that is first on a script's PYTHONPATH, and the variables that lead it there."""

import json
from collections.abc import Mapping
from pathlib import Path

from advisor.measure.process.script_hook import VARIABLE

_PROCESS = Path(__file__).resolve().parent


def hooked(folder: Path, settings: Mapping[str, object], pythonpath: str | None) -> dict[str, str]:
    """Variables by which a script's hook attaches to torch, after making its folder.

    Args:
        folder: Made here.
        settings: For the hook; see `advisor.measure.process.script_hook.VARIABLE`.
        pythonpath: The script's own PYTHONPATH.
    """
    folder.mkdir(exist_ok=True)
    for name, target in (
        ("sitecustomize.py", _PROCESS / "sitecustomize.py"),
        ("advisor", _PROCESS.parents[1]),
    ):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    paths = ":".join(filter(None, [str(folder), pythonpath]))
    return {VARIABLE: json.dumps(settings), "PYTHONPATH": paths}
