"""The folder of a run that `advisor run` started: its plan, its state, and what its jobs write.

It lies in the user's state folder (XDG base directory specification) for the run's whole life and
after, so that watching goes on after the watcher ended in any way. The state is replaced as a
whole; it says what was about to be done before it is done. Whoever watches locks the folder.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from time import time

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.execution.run_state import RunState
from advisor.measure.shared.strict_record import record
from advisor.workload.documents import read_json
from advisor.workload.files import located, reason_of
from advisor.workload.writing import write_whole

_REMEDY = "End the run by `advisor stop`, and start it anew."

# Begins the name of a folder that is being made; one that its maker left is cleared away.
_DRAFT = "."
_NEW_S = 60.0


class RunFolder:
    """A run's folder; nothing is made of it before `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def hook(self) -> Path:
        """Where the hook lies that counts the steps of scripts."""
        return self.path / "hook"

    def log(self, number: int, name: str) -> Path:
        """A job's log; never outside this folder.

        Raises:
            InvalidInput: The name is none of a file.
        """
        return self._within(f"job-{number}-{name}.log")

    def progress(self, number: int) -> Path:
        return self._within(f"job-{number}.progress")

    def end(self, number: int) -> Path:
        return self._within(f"job-{number}.end")

    def _within(self, name: str) -> Path:
        if "/" in name or "\0" in name or name in (".", "..") or len(os.fsencode(name)) > 255:
            raise InvalidInput(f"{name!r} names no file of a run. Rename the job.")
        return self.path / name

    def create(self, plan_text: str, state: RunState) -> None:
        """Make the folder, readable by its owner alone.

        Raises:
            AdvisorError: It cannot be made.
        """
        draft = RunFolder(self.path.with_name(_DRAFT + self.path.name))
        try:
            draft.path.mkdir(mode=0o700, parents=True)
            write_whole(draft.plan, plan_text)
            draft.write(state)
            draft.path.rename(self.path)
        except (OSError, AdvisorError) as error:
            shutil.rmtree(draft.path, ignore_errors=True)
            why = reason_of(error) if isinstance(error, OSError) else str(error).partition(". ")[0]
            raise AdvisorError(
                f"{self.path}: {why}. Set XDG_STATE_HOME to a folder that can be written."
            ) from None

    def write(self, state: RunState) -> None:
        """Replace the state.

        Raises:
            AdvisorError: It cannot be written; the one before stays.
        """
        write_whole(self.path / "state.json", json.dumps(asdict(state), indent=1) + "\n")

    def state(self) -> RunState:
        """The run as it was last written down.

        Raises:
            InvalidInput: There is no such run, or its file is damaged.
        """
        path = self.path / "state.json"
        document = read_json(path, _REMEDY)
        with located(path, _REMEDY):
            return record(RunState, document)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Hold the run while the block watches it.

        Raises:
            GpuUnavailable: Another process watches it.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise GpuUnavailable(
                f"run {self.path.name} is watched by another process. `advisor status` shows it; "
                f"`advisor stop` ends it."
            ) from None
        try:
            yield
        finally:
            os.close(descriptor)

    @property
    def is_watched(self) -> bool:
        try:
            with self.watched():
                return False
        except GpuUnavailable:
            return True


def runs_folder() -> Path:
    """Where all runs of this user lie."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "advisor" / "runs"


def new_id() -> str:
    """The moment and a random word: unique, and a name of a file."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{token_hex(3)}"


def sweep_drafts() -> None:
    """Remove folders that were being made when their maker was killed."""
    for path in runs_folder().glob(f"{_DRAFT}*"):
        with suppress(OSError):
            if abs(time() - path.stat().st_mtime) > _NEW_S:
                shutil.rmtree(path)


def run_folders() -> tuple[RunFolder, ...]:
    """Every run of this user, the oldest first."""
    with suppress(OSError):
        found = sorted(each for each in runs_folder().glob("[!.]*") if each.is_dir())
        return tuple(map(RunFolder, found))
    return ()


def run_named(asked: str | None) -> RunFolder:
    """The run with that id, or the start of one; None: the only one that is not over.

    Raises:
        InvalidInput: There is none, or several.
    """
    found = run_folders()
    if asked is None:
        found = tuple(each for each in found if not each.state().over)
    else:
        found = tuple(each for each in found if each.path.name.startswith(asked))
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.path.name for each in found)
    if found:
        raise InvalidInput(f"several runs are meant: {names}. Name one of them.")
    what = "no run is under way" if asked is None else f"no run is called {asked!r}"
    raise InvalidInput(f"{what}. `advisor status --all` lists them.")
