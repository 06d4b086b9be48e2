"""Where a user's own measurements, models and caches go; needs the standard library only."""

import os
from pathlib import Path
from typing import Literal

Kind = Literal["profiles", "models", "calibrations"]


def user_folder(kind: Kind) -> Path:
    """The user's own folder of `kind`, after the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "advisor" / kind


def cache_folder(kind: Literal["inductor"]) -> Path:
    """Where what can be made again outlives a run, after the same specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "advisor" / kind
