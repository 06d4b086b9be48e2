"""Writes records whole or not at all; needs the standard library only."""

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile

from advisor.errors import AdvisorError
from advisor.workload.calibration import Calibration
from advisor.workload.profile import Profile
from advisor.workload.run import Run


def write_whole(path: Path, text: str) -> None:
    """Put `text` into `path` at once, so that no reader ever finds half of it.

    Raises:
        AdvisorError: The folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False) as draft:
            try:
                draft.write(text)
                draft.flush()
                Path(draft.name).chmod(0o644)
                os.replace(draft.name, path)  # noqa: PTH105 - one word for one system call
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(draft.name).unlink()
                raise
    except OSError as error:
        raise AdvisorError(f"{path}: {error.strerror}. Choose another --out.") from None


def profile_text(profile: Profile) -> str:
    """`profile` as JSON, one line, numbers as short as they round-trip."""
    return json.dumps(asdict(profile), separators=(",", ":"), allow_nan=False) + "\n"


def calibration_text(calibration: Calibration) -> str:
    """`calibration` as JSON, indented for a person to read."""
    return json.dumps(asdict(calibration), indent=1, allow_nan=False) + "\n"


def run_line(run: Run) -> str:
    """`run` as one line of JSON Lines."""
    return json.dumps(asdict(run), separators=(",", ":"), allow_nan=False) + "\n"


def append_run(path: Path, run: Run) -> None:
    """Add `run` to the JSON Lines file `path` in one write, so that no line is ever half there.

    Raises:
        AdvisorError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as lines:
            lines.write(run_line(run).encode())
    except OSError as error:
        raise AdvisorError(f"{path}: {error.strerror}. Choose another --out.") from None
