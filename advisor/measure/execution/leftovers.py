"""Ends runs that nobody watches, and finds those whose watcher was killed."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from time import monotonic

from advisor.english import counted
from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.execution.job_process import GRACE_S
from advisor.measure.execution.run_folder import RunFolder, run_folders
from advisor.measure.execution.run_processes import end_marked, marked, send
from advisor.measure.execution.run_state import JobState, RunState
from advisor.measure.process.mps_daemon import MpsDaemon
from advisor.measure.process.process_ends import end_mps_within, wait_until
from advisor.measure.process.run_locks import sweep_locks


def end_run(folder: RunFolder) -> str:
    """End every process and daemon of the run, which nobody watches; what was done, in words.

    Jobs are asked first and killed after the grace, those under MPS after its server let go of
    them; daemons go after their clients. Done again, it does nothing.

    Raises:
        GpuUnavailable: Another process watches the run.
        AdvisorError: The kernel does not let a process of it end.
    """
    with folder.watched():
        state = _state_of(folder)
        keepers = [job.keeper for job in state.jobs if job.keeper] if state else []
        jobs = set(marked(folder.path.name)) & set(keepers)
        send(jobs, SIGTERM)
        wait_until(lambda: not jobs & set(marked(folder.path.name)), GRACE_S + 15 if jobs else 0)
        pipes = Path(state.pipes) if state else None
        if pipes is not None:
            for each in sorted(pipes.glob("*/mps")):
                MpsDaemon(each.parent, "", {}).stop()
        others = len(marked(folder.path.name))
        left = end_marked(folder.path.name, 2.0)
        if pipes is not None:
            end_mps_within(pipes)
            shutil.rmtree(pipes, ignore_errors=True)
        sweep_locks()
        if left:
            pids = ", ".join(map(str, left))
            raise AdvisorError(f"run {folder.path.name}: processes {pids} do not end. See dmesg.")
        if state is not None and not state.over:
            _write_over(folder, state)
        return f"run {folder.path.name}: {_said(len(jobs), others)}"


def _said(jobs: int, others: int) -> str:
    done = [f"{counted(jobs, 'job')} ended"] * bool(jobs)
    done += [f"{counted(others, 'other process')} ended"] * bool(others)
    return ", ".join(done) or "nothing of it was left"


def _state_of(folder: RunFolder) -> RunState | None:
    """None where its file is damaged: its processes bear its mark all the same."""
    try:
        return folder.state()
    except InvalidInput:
        return None


def _write_over(folder: RunFolder, state: RunState) -> None:
    def ended(job: JobState) -> JobState:
        if job.phase == "ended":
            return job
        never = job.phase == "waiting"
        detail = "was never started" if never else "was ended after its watcher"
        at_s = None if never else monotonic()
        return replace(job, phase="ended", fate="stopped", detail=detail, ended_s=at_s)

    folder.write(replace(state, over=True, jobs=tuple(map(ended, state.jobs))))


def abandoned() -> Iterator[RunFolder]:
    """Every run of this user that is not over, or left something, and that nobody watches."""
    for folder in run_folders():
        state = _state_of(folder)
        done = state is not None and state.over
        if not folder.is_watched and not (done and not marked(folder.path.name)):
            yield folder
