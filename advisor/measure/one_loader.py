"""The data loader that tenants of one run share: their own command, started once more for it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread
from time import monotonic

from advisor.measure.own_files import Place, place_for
from advisor.measure.script import StartedScript
from advisor.measure.tenant import TenantSetup, setup_of
from advisor.shared_loader import FOLDER, JOBS
from advisor.workload.spec import Workload

# Seconds that the loader of tenants which have ended takes to see that, and to end.
_ENDING_S = 5.0


def sharing_one(
    setups: Sequence[TenantSetup], workloads: Sequence[Workload], place: Path
) -> tuple[tuple[TenantSetup, ...], TenantSetup | None]:
    """Return `setups` that use one data loader, whose files lie in `place`, and its own setup.

    It sees the GPU as the first of them does. None: they share no loader.
    """
    sharers = [at for at, each in enumerate(workloads) if each.shared_loader]
    if len(sharers) < 2:
        return tuple(setups), None

    def of_group(at: int, more: Mapping[str, str]) -> TenantSetup:
        variables = {**setups[at].environment, FOLDER: str(place), **more}
        return setup_of(workloads[at], setups[at].device, variables)

    own = (of_group(at, {}) if at in sharers else each for at, each in enumerate(setups))
    return tuple(own), of_group(sharers[0], {JOBS: str(len(sharers))})


@contextmanager
def with_loader(
    setups: Sequence[TenantSetup],
    workloads: Sequence[Workload],
    folder: Path,
) -> Iterator[tuple[TenantSetup, ...]]:
    """Start the loader of those that share one, and yield `setups` that use it; end it at last.

    Its files lie in `folder`, a short path.
    """
    place = Path(mkdtemp(prefix="l", dir=folder))  # which only this user can enter
    own, loader = sharing_one(setups, workloads, place)
    if loader is None:
        yield own
        return
    temporary = Path(mkdtemp(prefix="l", dir=folder))
    # A command of ours finds this package by the path, installed or not.
    ours = {"TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if loader.device == "cpu" else {}
    running = StartedScript(
        loader.script,
        temporary,
        {**hidden, **loader.environment, **(ours if loader.ours else {})},
        place=Place(folder) if loader.ours else place_for(loader.script, folder / "loader"),
        piped=False,
        writable=loader.line is not None,
    )
    Thread(target=_note_end, args=(os.dup(running.exited), place), daemon=True).start()
    try:
        if loader.line is not None:
            running.write_line(loader.line)
        yield own
    finally:
        running.interrupt()
        running.end_by(monotonic() + _ENDING_S)


def _note_end(exited: int, place: Path) -> None:
    """Leave a file for the jobs of the loader in `place` when its process has ended."""
    wait([exited])
    os.close(exited)
    with suppress(OSError):  # the run is over
        (place / "ended").touch()
