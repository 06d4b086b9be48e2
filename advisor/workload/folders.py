"""Which files lie where: profiles, and a user's own data; needs the standard library only."""

import os
from pathlib import Path
from typing import Literal

Kind = Literal["profiles", "models", "calibrations"]

# What the data of a GPU say, beside its profiles; see `advisor.validation.figures`.
EVALUATION = "evaluation.json"


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
