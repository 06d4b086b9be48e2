"""``python -m advisor.execution``: runs a plan; shows runs, ends them, and clears up after."""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.execution.dry_run import dry_run, refuse_unfit
from advisor.measure.execution.execution_plan import read_execution_plan
from advisor.measure.execution.job_process import GRACE_S
from advisor.measure.execution.leftovers import abandoned, end_run
from advisor.measure.execution.recorded_run import recorded_runs
from advisor.measure.execution.run_folder import run_folders, run_named
from advisor.measure.execution.run_monitor import RunMonitor
from advisor.measure.execution.run_status import status_lines, status_of, stop_run
from advisor.measure.execution.run_view import RunView, view_lines
from advisor.measure.execution.watching import RunPlace, Watch, resume, start
from advisor.measure.process.claimed_device import Device, device_at_hand
from advisor.measure.process.cores import allowed_cores
from advisor.measure.process.option_numbers import option_number
from advisor.measure.process.provenance import Origin, command_line
from advisor.measure.process.run_locks import sweep
from advisor.measure.process.supervisor import INTERRUPTED, say
from advisor.workload.writing import append_run, new_path, writable

_SHOWN_S = 5.0


def main(argv: Sequence[str]) -> int:
    """Do what the command line `argv` asks for; the exit code."""
    asked = _parser().parse_args(argv)
    asked.command = command_line("advisor.execution", argv)
    try:
        return int(asked.verb(asked))
    except KeyboardInterrupt:
        say("interrupted: every job of the run has been ended")
        return INTERRUPTED
    except AdvisorError as error:
        say(f"error: {error}")
        return error.exit_code


def _run(asked: argparse.Namespace) -> int:
    chosen = _chosen(asked)
    if chosen is None:
        return 0
    device, go = chosen
    if asked.out is not None:
        writable(asked.out)
    place = RunPlace(
        device=device, command=asked.command, cores=asked.cores, grace_s=asked.grace,
        patience_s=asked.patience,
    )  # fmt: skip
    monitor = go(
        place=place,
        watch=Watch(say=say, show=printed(partial(print, flush=True)), deadline_s=asked.deadline),
    )
    if asked.out is not None:
        for run in recorded_runs(monitor, origin_of(place)):
            append_run(asked.out, run)
    return exit_code_of(monitor)


def _chosen(asked: argparse.Namespace) -> tuple[Device, Callable[..., RunMonitor]] | None:
    """The GPU, and what starts or resumes the run; None where it is only rehearsed."""
    if asked.resume is not None:
        folder = run_named(asked.resume or None)
        state = folder.state()
        plan = read_execution_plan(folder.plan, state.most_steps)
        return device_at_hand(state.device), partial(resume, plan, folder)
    if asked.plan is None:
        raise InvalidInput("a plan is missing: a file of `advisor export --format json`")
    plan = read_execution_plan(asked.plan, asked.steps)
    device = device_at_hand(asked.device)
    refuse_unfit(plan, device)
    if not asked.apply:
        print("\n".join(dry_run(plan, device, allowed_cores(asked.cores))))
        return None
    return device, partial(start, plan, asked.plan.read_text(), most_steps=asked.steps)


def origin_of(place: RunPlace) -> Origin:
    """Where what was measured comes from."""
    return Origin(place.device, place.command, len(allowed_cores()))


def printed(write: Callable[[str], None]) -> Callable[[RunView], None]:
    """Writes a run every few seconds, and when a job ends."""
    last: dict[str, object] = {}

    def show(view: RunView) -> None:
        phases = tuple(job.phase for job in view.jobs)
        if phases == last.get("phases") and monotonic() - float(str(last["at"])) < _SHOWN_S:
            return
        last.update(phases=phases, at=monotonic())
        write("\n".join(view_lines(view)))

    return show


def exit_code_of(monitor: RunMonitor) -> int:
    """The exit code of a run that is over: 1 where a job of it failed."""
    running = monitor.running
    bad = [each for each in running.state.jobs if each.fate not in ("done", "stopped")]
    for each in bad:
        log = running.folder.log(each.number, running.plan.job(each.number).name)
        say(f"job {each.number}: {each.fate}: {each.detail}. Its log: {log}")
    return AdvisorError.exit_code if bad else 0


def _status(asked: argparse.Namespace) -> int:
    found = [status_of(folder) for folder in run_folders()]
    shown = [each for each in found if asked.all or not each["over"]]
    if asked.json:
        print(json.dumps({"schema": 1, "runs": shown}, indent=1))
        return 0
    for each in shown:
        print("\n".join(status_lines(each)))
    if not shown:
        print("no run is under way")
    return 0


def _stop(asked: argparse.Namespace) -> int:
    stop_run(run_named(asked.run), asked.job, say)
    return 0


def _restore(_asked: argparse.Namespace) -> int:
    for folder in abandoned():
        say(end_run(folder))
    sweep()
    return 0


_SECONDS = option_number(float, lambda value: 0 <= value < float("inf"), "a number of seconds")
_COUNT = option_number(int, lambda value: value >= 1, "at least 1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m advisor.execution", description="Runs a plan, and shows and ends runs."
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    run = verbs.add_parser("run", help="start a plan and watch it")
    _add_run_options(run.add_argument)
    run.set_defaults(verb=_run)
    status = verbs.add_parser("status", help="show runs")
    status.add_argument("--all", action="store_true", help="those that are over too")
    status.add_argument("--json", action="store_true")
    status.set_defaults(verb=_status)
    stop = verbs.add_parser("stop", help="end a run, or some jobs of it")
    stop.add_argument("run", nargs="?", metavar="RUN")
    stop.add_argument("--job", type=_COUNT, action="append", help="only the job of that number")
    stop.set_defaults(verb=_stop)
    restore = verbs.add_parser("restore", help="end what runs left whose watcher was killed")
    restore.set_defaults(verb=_restore)
    return parser


def _add_run_options(add: Callable[..., argparse.Action]) -> None:
    add("plan", type=Path, nargs="?", help="what `advisor export --format json` wrote")
    add("--apply", action="store_true", help="start it [say what would be started]")
    add("--resume", nargs="?", const="", metavar="RUN", help="watch a run that goes on unwatched")
    add("--device", default="0", help="GPU index or UUID, or cpu to try out [0]")
    add("--steps", type=_COUNT, help="steps of each job of the zoo at most [as planned]")
    add("--cores", help="host cores for jobs, e.g. 0-15 [all]")
    add("--deadline", type=_SECONDS, help="stop what still runs after so many seconds")
    add("--grace", type=_SECONDS, default=GRACE_S, help="seconds between asking a job to end and "
        "killing it [30]")  # fmt: skip
    add("--patience", type=_SECONDS, help="end a job that does no step for so many seconds")
    add("--out", type=new_path, help="JSON Lines file to which what was measured is added")
