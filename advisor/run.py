"""Runs a plan: starts the script that `export` writes, watches it, ends it, undoes what is left.

The script owns jobs, MPS daemons, MIG instances and the power cap (`advisor.launch.shell`).
It runs in a session of its own, so a watcher that ends harms nothing. A run lies in a folder of its
own in the user's state folder: the plan, the script, their logs, and what happened
(`advisor.watched_run`).
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from signal import SIGTERM
from time import monotonic, sleep
from typing import Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.machine import allowed_cores
from advisor.launch.launch_plan import LaunchPlan
from advisor.launch.plan_file import plan_text, refuse_unfit, script_text, secret_variables
from advisor.launch.shell import bash
from advisor.measure.device import Meter, Origin, find_device, refuse_busy
from advisor.measure.hook_folder import hook_variables
from advisor.measure.process import lock_gpu, sweep, tail
from advisor.measure.script import create_progress
from advisor.measured_pace import PacedPlan
from advisor.report.record_documents import ListedRunFields
from advisor.run_state import (
    jobs_left,
    left_in,
    left_states,
    lock_file,
    state_file,
    state_home,
    variable,
)
from advisor.watched_run import WatchedJob, WatchedRun, events_in, script_lives
from advisor.workload.reading import read_bytes, reason_of, user_folder
from advisor.workload.records import parse_record
from advisor.workload.run import Run
from advisor.workload.writing import append_run, writable, write_whole

Say = Callable[[str], None]

_COMMAND = "advisor run"
_LOOK_S = 0.5
# A script that was asked to end takes its jobs' grace, and this for MPS and MIG.
_ENDING_S = 60.0
# Variables of the script, which it must not take from its caller.
_OWN = ("ADVISOR_REPLACE", "ADVISOR_MARK", "ADVISOR_JOB", "ADVISOR_PROGRESS")
_STARTED: "list[subprocess.Popen[bytes]]" = []


@dataclass(frozen=True, slots=True)
class RunFile:
    """The file ``run.json`` about a run; ``steps`` and ``cores`` are None without such a limit."""

    schema: Literal[1]
    gpu: str
    device: str
    since: str
    steps: int | None
    cores: str | None
    grace_s: float


def rehearse(
    plan: LaunchPlan,
    *,
    device: str = DEFAULT_DEVICE,
    cores: str | None = None,
    steps: int | None = None,
) -> str:
    """Return the script that `start` would start; secrets are hidden.

    Raises:
        InvalidInput: The device here is another than the plan's, or `cores` are not ours.
    """
    allowed_cores(cores)
    try:
        target = find_device(device, on_mig=plan.on_mig)
    except GpuUnavailable:  # the plan may be for another machine
        return script_text(plan, "cuda", steps, masked=True)
    refuse_unfit(plan, target.kind, target.key)
    return script_text(plan, target.kind, steps, masked=True)


def start(
    plan: LaunchPlan, *, device: str = DEFAULT_DEVICE, cores: str | None = None,
    steps: int | None = None, replace_instances: bool = False, grace_s: float = 30.0,
) -> Path:  # fmt: skip
    """Start the script of a plan in a session of its own, and return the folder of the run.

    Args:
        plan: The plan.
        device: GPU index or UUID, or ``"cpu"`` to try out.
        cores: Host cores over which all jobs float, as a user writes them; None: all.
        steps: Most steps of each job of the zoo; None: as planned.
        replace_instances: Remove idle MIG instances that are in the way until the end.
        grace_s: Between asking a job to end and killing it.

    Raises:
        GpuUnavailable: No GPU, no permission, or another process uses it.
        InvalidInput: The plan is for another device, or a secret has two values.
        AdvisorError: The folder cannot be written.
    """
    sweep()
    target = find_device(device, on_mig=plan.on_mig)
    name = target.uuid or "cpu"
    refuse_unfit(plan, target.kind, target.key)
    held = allowed_cores(cores)
    script = script_text(plan, target.kind, steps)
    secrets = secret_variables(plan)
    _undo_before(name)
    folder = state_home() / "runs" / f"{datetime.now(UTC):%Y%m%dT%H%M%S-%f}"
    lock = None
    if target.uuid is not None:
        path, descriptor = lock_gpu(target.uuid, _COMMAND)
        lock = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20)  # the script uses those below
        os.close(descriptor)
    try:
        if target.uuid is not None:
            refuse_busy(target.uuid)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        about = RunFile(1, plan.gpu.key, name, since, steps, cores, grace_s)
        _make_folder(folder, plan, about, script)
        environment = {
            **secrets,
            **{name: value for name, value in os.environ.items() if name not in _OWN},
            **hook_variables(folder / "hook", {"count": True}, os.environ),
            "GPU": name,
            "ADVISOR_RUN": str(folder),
            "ADVISOR_HOOK_PATH": str(folder / "hook"),
            "ADVISOR_GRACE_S": str(ceil(grace_s)),
            "PYTHONUNBUFFERED": "1",  # what a job prints is seen at once
            **({"ADVISOR_REPLACE": "1"} if replace_instances else {}),
        }
        with (folder / "script.log").open("ab") as log, _on_cores(held):
            process = subprocess.Popen(
                ["bash", str(folder / "script.sh")], env=environment, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
                pass_fds=[] if lock is None else [lock],
            )  # fmt: skip
        _STARTED.append(process)
        _note(folder, f"script {process.pid}")
        # Popen returns before the kernel shows the variables by which a script is recognised.
        while not script_lives(folder) and process.poll() is None:
            sleep(0.01)
    except BaseException:
        if lock is not None:
            path.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)
    return folder


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Have children start on `cores`; a `taskset` hides its variables while it becomes a script."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _make_folder(folder: Path, plan: LaunchPlan, about: RunFile, script: str) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
        write_whole(folder / "plan.json", plan_text(plan, with_steps=True))
        write_whole(folder / "script.sh", script)
        write_whole(folder / "run.json", json.dumps(asdict(about), indent=1) + "\n")
        for start in plan.starts:
            create_progress(folder / f"job-{start.number}.progress")
    except OSError as error:
        raise AdvisorError(
            f"{folder}: {reason_of(error)}. Set XDG_STATE_HOME to a folder that can be written."
        ) from None


def _note(folder: Path, line: str) -> None:
    with (folder / "events").open("a") as events:
        events.write(line + "\n")


def watch(
    folder: Path, plan: PacedPlan | None, *, say: Say, show: Callable[[WatchedRun], None],
    deadline_s: float | None = None, patience_s: float | None = None,
    log: Callable[[Run], None] | None = None,
) -> int:  # fmt: skip
    """Watch a run to its end, store what was measured for `fit`, and return the exit code.

    Ctrl-C ends the run; whatever else ends the watcher does not.

    Args:
        folder: Of the run.
        plan: Predicts and corrects it; None: steps are expected as the folder's plan has them.
        say: Takes a line about something that happened.
        show: Takes the run as it is, again and again.
        deadline_s: After so many seconds the run is ended; None: never.
        patience_s: A job that counts steps and does none for so long is ended; None: never.
        log: Takes each record for `fit`, which are stored anyway.

    Raises:
        GpuUnavailable: The script ended before it started a job.
        KeyboardInterrupt: It was interrupted, and the run has ended.
    """
    about = _about(folder)
    device = find_device(about.device, on_mig=True)
    expected = None if plan is None else plan.expected
    run = WatchedRun(folder, about.steps, Meter(device), expected)
    interrupted = False
    while True:
        try:
            _to_the_end(run, plan, say, show, deadline_s, patience_s)
            break
        except KeyboardInterrupt:
            interrupted = True
            say("ending the jobs")
            _ask_to_end(folder)
    sweep()
    if interrupted:
        raise KeyboardInterrupt
    if not run.events.started_s:
        raise GpuUnavailable(f"{folder.name}: no job started. {tail(folder / 'script.log')}")
    with suppress(InvalidInput):  # cores of another process
        allowed = allowed_cores(about.cores)
        file = user_folder("profiles") / device.key / "runs" / "validation.jsonl"
        records = list(run.records(Origin(device, _COMMAND, len(allowed_cores())), allowed))
        if records:
            writable(file)
        for each in records:
            append_run(file, each)
            if log is not None:
                log(each)
        if not records:
            say(
                "nothing of it is kept for `advisor fit`, which learns from jobs that all step at "
                "the same time, for ten seconds at least"
            )
    return _exit_code(run, say)


def _to_the_end(
    run: WatchedRun, plan: PacedPlan | None, say: Say, show: Callable[[WatchedRun], None],
    deadline_s: float | None, patience_s: float | None,
) -> None:  # fmt: skip
    began_s, reported, ended = monotonic(), set[tuple[int, str]](), False
    while True:
        alive = script_lives(run.folder)  # before the look: what it wrote last is seen then
        run.look()
        if plan is not None:
            plan.correct(run)
        show(run)
        if run.events.over is not None or not alive:
            return
        if plan is not None:
            _say_better(run, plan, say)
        for job in run.jobs:
            if job.drifted and (job.number, "pace") not in reported:
                reported.add((job.number, "pace"))
                say(f"{job}: its pace has changed since its first second")
            if job.silent_s is not None and (job.number, "silent") not in reported:
                reported.add((job.number, "silent"))
                say(
                    f"job {job.number}, {job.workload.name}: no step for {job.silent_s:.0f} s. To "
                    f"end it: advisor stop {run.folder.name} --job {job.number}"
                )
        for number in run.silent(patience_s):
            say(f"job {number}: no step for {patience_s:g} s")
            stop(run.folder, number, say)
        if deadline_s is not None and monotonic() - began_s > deadline_s and not ended:
            ended = True
            say("ending the jobs at the deadline")
            _ask_to_end(run.folder)
        sleep(_LOOK_S)


def _say_better(run: WatchedRun, plan: PacedPlan, say: Say) -> None:
    if (better := plan.better(run)) is None:
        return
    path = run.folder / "other.json"
    write_whole(path, plan_text(better.plan))
    device = _about(run.folder).device
    say(
        f"{better.plan.sharing} is better for these jobs by {better.gain:.0%} of {better.objective}"
        f", more than the error of both. To start it from the first step: advisor stop "
        f"{run.folder.name} && advisor run {path} --apply --device {device}"
    )


def _exit_code(run: WatchedRun, say: Say) -> int:
    bad = False
    for job in run.jobs:
        if job.state not in ("done", "stopped"):
            bad = True
            say(f"job {job.number}, {job.workload.name}: {job.state} {job.detail} {job.log}")
    if run.events.over is None:
        say(
            f"{run.folder.name}: its script was killed. `advisor stop {run.folder.name}` ends its "
            f"jobs, and undoes what it changed."
        )
        return AdvisorError.exit_code
    if run.events.over and not bad and not run.events.stopped:
        bad = True
        say(tail(run.folder / "script.log"))
    return AdvisorError.exit_code if bad else 0


def stop(folder: Path, job: int | None, say: Say) -> None:
    """End a run, or one job of it; what a killed script left is undone.

    Raises:
        InvalidInput: It has no such job.
        AdvisorError: Something does not end.
    """
    about, events = _about(folder), events_in(folder)
    state = state_file(about.device)
    if job is not None:
        if not (folder / f"job-{job}.progress").exists():
            count = len(list(folder.glob("job-*.progress")))
            raise InvalidInput(f"{folder.name} has jobs 1 to {count}, not {job}.")
        if job not in events.running or not _is_of(state, folder):
            say(f"job {job} does not run")
            return
        _note(folder, f"asked {job}")
        _run_in(state, "\n".join([*bash("stop_job"), f"stop_job {job} {ceil(about.grace_s)}"]))
        say(f"job {job} has ended")
        return
    if events.over is not None:
        say(f"{folder.name} is over")
        return
    _ask_to_end(folder)
    until_s = monotonic() + about.grace_s + _ENDING_S
    while script_lives(folder) and monotonic() < until_s:
        sleep(0.05)
    if script_lives(folder):
        raise AdvisorError(f"{folder.name}: its script does not end. See {folder / 'script.log'}")
    if events_in(folder).over is None:
        if _is_of(state, folder):
            _undo(state, about.grace_s)
        _note(folder, "over 1 0")
    sweep()
    say(f"{folder.name} has ended")


def _is_of(state: Path, folder: Path) -> bool:
    """Check that the state file is still about the run in `folder`, not about a later one."""
    return left_in(state) != [] and variable(state, "run") == str(folder)


def _ask_to_end(folder: Path) -> None:
    _note(folder, "asked 0")
    if script_lives(folder):
        with suppress(ProcessLookupError):
            os.kill(int(events_in(folder).script or 0), SIGTERM)


def _undo_before(device: str) -> None:
    """Undo what a killed script left on the device, unless its jobs go on."""
    state = state_file(device)
    if state in left_states():
        if jobs_left(left_in(state)):
            raise GpuUnavailable(
                f"{state}: jobs of a killed script go on. Wait for them, or end them: `advisor "
                f"doctor --undo`."
            )
        _undo(state)


def undo_left() -> Iterator[str]:
    """End and undo what killed scripts and measurements left on this machine, a line each.

    Raises:
        AdvisorError: Something cannot be undone.
    """
    for path in left_states():
        _undo(path)
        yield f"{path}: undone"
    for path in sweep():
        yield f"{path}: removed, and ended what a killed measurement left"


def _undo(state: Path, grace_s: float = 30.0) -> None:
    """End the jobs of a killed script and undo its changes, unless another script has begun."""
    words = (
        f'exec 9>> "{lock_file(state)}"; flock -n 9 || fail "a script runs jobs there"; '
        f"trap '' INT HUP TERM; ADVISOR_GRACE_S={ceil(grace_s)}; [ -d \"$run\" ] || run=; "
        f'undo 0 && rm -f "$state" && event "over 1"'
    )
    _run_in(state, words)


def _run_in(state: Path, words: str) -> None:
    """Run shell words with the functions and variables of a state file."""
    program = f'set -uo pipefail; undos=(); source "$1"; {words}'
    done = subprocess.run(
        ["bash", "-c", program, "advisor", str(state)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise AdvisorError(f"{state}: {done.stderr.strip()}")


def _run_folders() -> list[Path]:
    """The folders of all runs of this user, the oldest first."""
    return sorted(path.parent for path in (state_home() / "runs").glob("*/run.json"))


def find_run(word: str | None) -> Path:
    """Return the folder of a run by its path or the start of its name; None: the one going on.

    Raises:
        InvalidInput: There is none, or several.
    """
    if word is not None and (Path(word) / "run.json").is_file():
        return Path(word).resolve()
    if word is None:
        fitting = [each for each in _run_folders() if events_in(each).over is None]
    else:
        fitting = [each for each in _run_folders() if each.name.startswith(word)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidInput(f"name one run of {', '.join(each.name for each in fitting)}.")
    what = "no run goes on" if word is None else f"there is no run {word}"
    raise InvalidInput(f"{what}. `advisor run --list` lists runs.")


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of this user as `advisor run --list` shows it; `about` is None if it is unreadable."""

    name: str
    state: str
    about: RunFile | None = None
    jobs: tuple[WatchedJob, ...] = ()

    def __str__(self) -> str:
        where = "" if self.about is None else f" on {self.about.gpu} since {self.about.since}"
        return "\n".join([f"{self.name}{where}: {self.state}", *map(str, self.jobs)])

    @property
    def document(self) -> ListedRunFields:
        """Its entry in ``advisor run --list --json``."""
        return {
            "run": self.name, "state": self.state,
            "gpu": None if self.about is None else self.about.gpu,
            "since": None if self.about is None else self.about.since,
            "jobs": [
                {
                    "number": job.number, "job": job.planned.job, "state": job.state,
                    "detail": job.detail, "steps_done": job.done, "steps": job.steps,
                }
                for job in self.jobs
            ],
        }  # fmt: skip


def listed_runs() -> Iterator[ListedRun]:
    """Return each run of this user and the state of its jobs, the oldest first."""
    for folder in _run_folders():
        try:
            about = _about(folder)
            run = WatchedRun(folder, about.steps)
        except InvalidInput as error:
            yield ListedRun(folder.name, str(error))
            continue
        run.look()
        state = "over" if run.events.over is not None else "runs"
        if state == "runs" and not script_lives(folder):
            state = f"its script was killed: advisor stop {folder.name}"
        yield ListedRun(folder.name, state, about, tuple(run.jobs))


def _about(folder: Path) -> RunFile:
    path = folder / "run.json"
    remedy = f"Remove {folder} once nothing of it runs."
    return parse_record(RunFile, read_bytes(path), str(path), remedy)
