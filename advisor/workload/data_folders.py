"""The folders of shipped data, profiles and the user's data; needs the standard library only."""

import os
from pathlib import Path
from typing import Literal

Kind = Literal["profiles", "models", "calibrations"]

# The scores of a GPU's model, in the folder of its profiles; see `research.figures`.
EVALUATION = "evaluation.json"

_PACKAGE = Path(__file__).resolve().parent.parent


def beside_package(name: str) -> Path:
    """The path of `name` next to the package in a checkout, and inside it in a wheel."""
    # In a checkout the packaged copy is stale: an editable install leaves one behind.
    in_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    return _PACKAGE.parent / name if in_checkout else _PACKAGE / "_shipped" / name


def shown(path: Path) -> str:
    """`path` for messages; a file that came with the package is called shipped or bundled."""
    for kind in ("profiles", "models"):
        if path.is_relative_to(folder := beside_package(kind)):
            return f"the shipped {kind}, {path.relative_to(folder)}"
    return f"the bundled {path.name}" if path.is_relative_to(_PACKAGE) else str(path)


def profile_files(folder: Path) -> list[Path]:
    """The profile files in `folder`, those of one GPU; none if there is no such folder."""
    return [path for path in sorted(folder.glob("*.json")) if path.name != EVALUATION]


def user_folder(kind: Kind) -> Path:
    """The user's own folder of `kind`, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "advisor" / kind


def cache_folder(kind: Literal["inductor"]) -> Path:
    """The folder for caches that outlive a run, by the same specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "advisor" / kind
