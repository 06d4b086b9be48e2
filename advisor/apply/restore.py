"""Undoes what killed runs and measurements left: processes, MPS daemons, then MIG instances."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from advisor.apply.mig_layout import give_back
from advisor.errors import AdvisorError
from advisor.launch.journal import taken_over
from advisor.measure.execution.leftovers import abandoned, end_run
from advisor.measure.execution.run_folder import run_folders
from advisor.measure.process.journal_files import journal_file, journal_files
from advisor.measure.process.run_locks import sweep_locks
from advisor.measure.process.scratch_folders import sweep_folders


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of one thing that was left; `why_not` is None where it is undone."""

    said: str
    why_not: AdvisorError | None = None


def restore() -> Iterator[Restored]:
    """Undo all that the user's dead runs left on this machine, each as it is done.

    What a live run does is left alone. Doing it twice, or again after it was interrupted, is the
    same as doing it once.
    """
    yield from _runs_ended()  # jobs before what they stand on
    for folder in sweep_folders():
        yield Restored(f"{folder}: what a killed measurement left was ended, its folder removed")
    for lock in sweep_locks():
        yield Restored(f"{lock}: the lock of a killed run was removed")
    for path in journal_files():
        yield from layout_back(path.stem)


def layout_back(gpu: str) -> Iterator[Restored]:
    """Put back the MIG instances of the GPU with the UUID `gpu` that a dead run changed."""
    path = journal_file(gpu)
    try:
        yield from _layout_back(path)
    except AdvisorError as error:
        yield Restored(f"{path}: not undone", error)


def _runs_ended() -> Iterator[Restored]:
    """End runs of plans that nobody watches; those that somebody watches are named."""
    for folder in run_folders():
        if folder.is_watched:
            yield Restored(f"run {folder.path.name}: another process watches it, and it goes on")
    for folder in abandoned():
        try:
            yield Restored(end_run(folder))
        except AdvisorError as error:
            yield Restored(f"run {folder.path.name}: not ended", error)


def _layout_back(path: Path) -> Iterator[Restored]:
    with taken_over(path) as log:
        if log is None:
            if path.exists():
                yield Restored(f"{path.stem}: a run is at work on it, and left alone")
        elif not log.owner.on_this_machine:
            yield Restored(f"{log.owner}: run this there too")
        else:
            gone = None if log.owner.in_this_boot else "the machine was started again since"
            if done := give_back(log) or gone:
                yield Restored(f"{log.owner}: {done}")
            for why in log.damaged:
                yield Restored(f"{log.owner}: not undone", AdvisorError(why))
