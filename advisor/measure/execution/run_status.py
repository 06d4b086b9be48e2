"""Shows runs without watching them, and ends them, watched or not."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from advisor.errors import InvalidInput
from advisor.measure.execution.execution_plan import read_execution_plan
from advisor.measure.execution.leftovers import end_run
from advisor.measure.execution.run_folder import RunFolder
from advisor.measure.execution.run_processes import born, marked, send
from advisor.measure.execution.run_state import JobState, RunState
from advisor.measure.process.process_ends import wait_until
from advisor.measure.process.progress_file import progress_in

# A watcher ends its jobs first, each within its grace.
_ENDING_S = 120.0


def status_of(folder: RunFolder) -> dict[str, Any]:
    """The run as it is now, as ``advisor status --json`` prints it."""
    try:
        state = folder.state()
        names = [job.name for job in read_execution_plan(folder.plan, state.most_steps).jobs]
    except InvalidInput as error:
        alive = bool(marked(folder.path.name))
        return {"id": folder.path.name, "over": not alive, "damaged": str(error), "jobs": []}
    return {
        "id": state.id,
        "gpu": state.gpu,
        "device": state.device,
        "since": state.date,
        "command": state.command,
        "over": state.over,
        "watched": not state.over and folder.is_watched,
        "folder": str(folder.path),
        "jobs": [
            _job(folder, state, each, name)
            for each, name in zip(state.jobs, names, strict=False)
        ],
    }  # fmt: skip


def _job(folder: RunFolder, state: RunState, job: JobState, name: str) -> dict[str, Any]:
    progress = progress_in(folder.progress(job.number))
    ended = job.phase == "running" and not (job.keeper_lives and state.same_boot)
    return {
        "number": job.number,
        "job": name,
        "phase": "ended" if ended else job.phase,
        "fate": job.fate,
        "detail": job.detail,
        "steps": job.steps if progress is None else progress.steps,
        "log": str(folder.log(job.number, name)),
    }


def status_lines(status: dict[str, Any]) -> Iterator[str]:
    """The same, for a person."""
    run_id = status["id"]
    if "damaged" in status:
        yield f"{run_id}: {status['damaged']}"
        return
    yield f"{run_id} on {status['gpu']} since {status['since']}: {_how(status)}"
    for job in status["jobs"]:
        steps = "" if job["steps"] is None else f", {job['steps']:,} steps"
        said = job["phase"] if job["fate"] is None else job["fate"]
        detail = f" ({job['detail']})" if job["detail"] else ""
        yield f"  {job['number']} {job['job']}: {said}{detail}{steps}"


def _how(status: dict[str, Any]) -> str:
    """Whether a run is over or watched, else what may be done about it."""
    if status["over"] or status["watched"]:
        return "over" if status["over"] else "watched"
    if all(job["phase"] == "ended" for job in status["jobs"]):
        return "all its jobs have ended; `advisor restore` clears up after it"
    return (
        f"goes on unwatched: `advisor run --resume {status['id']}` watches it, "
        f"`advisor stop {status['id']}` ends it"
    )


def stop_run(
    folder: RunFolder, jobs: Sequence[int] | None, say: Callable[[str], None]
) -> None:  # fmt: skip
    """End a run, or those of its jobs that are named; whoever watches it sees it.

    Raises:
        InvalidInput: It has no such job.
        AdvisorError: It cannot be ended.
    """
    state = folder.state()
    if jobs is not None:
        for number in jobs:
            if not 1 <= number <= len(state.jobs):
                raise InvalidInput(f"run {state.id} has jobs 1 to {len(state.jobs)}, not {number}")
            _ask(state.job(number), say)
        return
    if not folder.is_watched:
        say(end_run(folder))
        return
    if state.watcher is not None and born(state.watcher) == state.watcher_born:
        os.kill(state.watcher, signal.SIGTERM)
    over = wait_until(lambda: folder.state().over, _ENDING_S)
    say(f"run {state.id}: " + ("ended by its watcher" if over else "is still being ended"))


def _ask(job: JobState, say: Callable[[str], None]) -> None:
    if job.phase == "running" and job.keeper and job.keeper_lives:
        send([job.keeper], signal.SIGTERM)
        say(f"job {job.number} was asked to end")
    else:
        say(f"job {job.number} does not run")
