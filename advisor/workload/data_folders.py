"""Which files lie where: profiles, and a user's own data; needs the standard library only."""

import os
from pathlib import Path
from typing import Literal

Kind = Literal["profiles", "models", "calibrations"]

# What the data of a GPU say, beside its profiles; see `research.figures`.
EVALUATION = "evaluation.json"

_PACKAGE = Path(__file__).resolve().parent.parent


def beside_package(name: str) -> Path:
    """What lies beside the package in a checkout, and inside it in a wheel."""
    # In a checkout the packaged copy is stale: an editable install leaves one behind.
    in_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    return _PACKAGE.parent / name if in_checkout else _PACKAGE / "_shipped" / name


def shown(path: Path) -> str:
    """`path` as messages name it; what came with the package is no file that a user looks after."""
    for kind in ("profiles", "models"):
        if path.is_relative_to(folder := beside_package(kind)):
            return f"the shipped {kind}, {path.relative_to(folder)}"
    return f"the bundled {path.name}" if path.is_relative_to(_PACKAGE) else str(path)


def profile_files(folder: Path) -> list[Path]:
    """The files of profiles in `folder`, which holds those of one GPU; none where there is none."""
    return [path for path in sorted(folder.glob("*.json")) if path.name != EVALUATION]


def user_folder(kind: Kind) -> Path:
    """The user's own folder of `kind`, after the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "advisor" / kind


def cache_folder(kind: Literal["inductor"]) -> Path:
    """Where what can be made again outlives a run, after the same specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "advisor" / kind
