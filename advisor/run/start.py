"""Starts and ends the script of a plan, which owns jobs, MPS daemons, MIG instances and power cap.

It runs in a session of its own, so a watcher that ends harms nothing. A run has a folder in the
user's state folder: plan, script, logs and events. `advisor.launch.shell` describes state files.
"""

import fcntl
import json
import os
import re
import shlex
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGQUIT, SIGTERM, getsignal, signal
from time import monotonic, sleep
from types import FrameType

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, counted
from advisor.files.reading import reason_of
from advisor.files.writing import write_whole
from advisor.hardware.machine import allowed_cores
from advisor.launch.launch_plan import LaunchPlan
from advisor.launch.plan_file import (
    SavedPlan,
    gang_left_out,
    plans_text,
    refuse_unfit,
    script_text,
    secret_variables,
)
from advisor.launch.shell import bash
from advisor.measure.device import devices_in, find_device, refuse_busy
from advisor.measure.launcher import tied_to_parent
from advisor.measure.process import lock_gpu, processes_of, sweep, unowned
from advisor.measure.script import create_progress, hook_variables
from advisor.run.watched import RunFile, events_in, read_about

Say = Callable[[str], None]

COMMAND = "advisor run"
# A script that was asked to end takes its jobs' grace, and this for MPS and MIG.
_ENDING_S = 60.0
# Variables of the script, which it must not take from its caller.
_OWN = ("ADVISOR_REPLACE", "ADVISOR_MARK", "ADVISOR_JOB", "ADVISOR_PROGRESS")
_STARTED: "list[subprocess.Popen[bytes]]" = []


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTerms:
    """Wishes of the user for a run.

    Attributes:
        cores: Host cores over which all jobs float, as a user writes them; None: all.
        steps: Most steps of each job of the zoo; None: as planned.
        replace_instances: Remove idle MIG instances that are in the way until the end.
        grace_s: Between asking a job to end and killing it.
        tied: Have the script end when this process ends in any way.
        deadline_s: On a cluster, the script is ended after so many seconds; None: never.
        patience_s: On a cluster, a job without a step for so long is ended; None: never.
    """

    cores: str | None = None
    steps: int | None = None
    replace_instances: bool = False
    grace_s: float = 30.0
    tied: bool = False
    deadline_s: float | None = None
    patience_s: float | None = None


def devices_for(plans: Sequence[SavedPlan], words: str | None) -> tuple[str, ...]:
    """Return the device here for each of `plans`: of those in `words` in order, or as planned.

    Raises:
        InvalidInput: They are for several hosts, or there are more or fewer devices.
    """
    if hosts := {plan.host for plan in plans} - {plans[0].host}:
        models = ", ".join(dict.fromkeys(plan.gpu for plan in plans))
        raise InvalidInput(
            f"the plan is for {len(hosts) + 1} hosts, and `advisor run` starts jobs on this host "
            "only. Use a Ray cluster: `advisor run PLAN --ray auto`. Or write a script for Slurm: "
            f"`advisor export --format slurm`. Or write the part of the plan on one of {models}: "
            "`advisor export --format json --only MODEL`."
        )
    if words is None:
        return tuple(str(plan.device) for plan in plans)
    devices = devices_in(words)
    devices *= len(plans) if devices == ("cpu",) else 1
    if len(devices) != len(plans):
        raise InvalidInput(
            f"--device {words}: the plan is for {counted(len(plans), 'GPU')}, not {len(devices)}. "
            "Name as many, or leave --device out."
        )
    return devices


def without_gangs(plans: Sequence[SavedPlan], say: Say) -> tuple[SavedPlan, ...]:
    """Return `plans` without the jobs that take several GPUs at once, each of which `say` names.

    Raises:
        InvalidInput: No other job is left.
    """
    counts = Counter(number for plan in plans for number in plan.numbers)
    left_out, kept = dict[int, str](), list[SavedPlan]()
    for plan in plans:
        alone = [at for at, number in enumerate(plan.numbers) if counts[number] == 1]
        for number, job in zip(plan.numbers, plan.jobs, strict=True):
            if counts[number] > 1:
                why = gang_left_out(job.name, counts[number], plan.gpu)
                left_out[number] = f"left out: job {number}, {why}"
        if alone:
            kept.append(plan if len(alone) == len(plan.jobs) else plan.restricted_to(alone))
    if not kept:
        raise InvalidInput(" ".join(left_out.values()))
    for line in left_out.values():
        say(line)
    return tuple(kept)


def rehearse(plan: LaunchPlan, device: str, terms: StartTerms) -> str:
    """Return the script that `start` would start; secrets are hidden.

    Raises:
        InvalidInput: The device here is another than the plan's, or `cores` are not ours.
    """
    allowed_cores(terms.cores)
    try:
        target = find_device(device, on_mig=plan.on_mig)
    except GpuUnavailable:  # the plan may be for another machine
        return script_text(plan, "cuda", terms.steps, masked=True)
    refuse_unfit(plan, target.kind, target.key)
    return script_text(plan, target.kind, terms.steps, masked=True)


@contextmanager
def started(
    plans: Sequence[LaunchPlan], devices: Sequence[str], terms: StartTerms, say: Say
) -> Iterator[list[Path]]:
    """Start each of `plans` on its device, or none; see `start`. Ctrl-C in the block ends them."""
    folders: list[Path] = []
    starting, before = True, getsignal(SIGINT)
    try:
        with _signals_held():
            for plan, device in zip(plans, devices, strict=True):
                folders.append(start(plan, device, terms))
                say(f"run {folders[-1].name}, in {folders[-1]}")
        starting = False
        yield folders
    except BaseException as error:
        if starting or isinstance(error, KeyboardInterrupt):
            for folder in folders:
                if events_in(folder).over is None:
                    stop(folder, None, say)
        raise
    finally:
        signal(SIGINT, before)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold back signals that would end this process until the block is over.

    From then on the first Ctrl-C alone interrupts this process.

    Raises:
        KeyboardInterrupt: SIGINT came.
        SystemExit: Another came.
    """

    def interrupt_once(_number: int, _frame: FrameType | None) -> None:
        signal(SIGINT, SIG_IGN)
        raise KeyboardInterrupt

    came: list[int] = []
    ending = [each for each in (SIGHUP, SIGINT, SIGQUIT, SIGTERM) if getsignal(each) != SIG_IGN]
    before = {each: signal(each, lambda number, _: came.append(number)) for each in ending}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal(each, interrupt_once if each == SIGINT else handler)
    if came:
        signal(SIGINT, SIG_IGN)
        raise KeyboardInterrupt if SIGINT in came else SystemExit(128 + came[0])


def start(plan: LaunchPlan, device: str, terms: StartTerms) -> Path:
    """Start the script of a plan in a session of its own, and return the folder of the run.

    `device` is a GPU's index or UUID, or ``"cpu"`` to try the plan out.

    Raises:
        GpuUnavailable: No GPU, no permission, or another process uses it.
        InvalidInput: The plan is for another device, or a secret has two values.
        AdvisorError: The folder cannot be written.
    """
    sweep()
    target = find_device(device, on_mig=plan.on_mig)
    # Plans of several GPUs that are tried out on one CPU have a state file each.
    name = target.uuid or f"cpu-{plan.host}-{plan.device}"
    refuse_unfit(plan, target.kind, target.key)
    held = allowed_cores(terms.cores)
    script = script_text(plan, target.kind, terms.steps)
    secrets = secret_variables(plan)
    if (state := state_file(name)) in left_states():
        if jobs_left(left_in(state)):
            raise GpuUnavailable(
                f"{state}: jobs of a killed script go on. Wait for them, or end them: `advisor "
                f"doctor --undo`."
            )
        _undo(state)
    folder = state_home() / "runs" / f"{datetime.now(UTC):%Y%m%dT%H%M%S-%f}"
    lock = None
    if target.uuid is not None:
        path, descriptor = lock_gpu(target.uuid, COMMAND)
        lock = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20)  # the script uses those below
        os.close(descriptor)
    try:
        if target.uuid is not None:
            refuse_busy(target.uuid)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        about = RunFile(1, plan.gpu.key, name, since, terms.steps, terms.cores, terms.grace_s)
        _make_folder(folder, plan, about, script)
        environment = {
            **secrets,
            **{name: value for name, value in os.environ.items() if name not in _OWN},
            **hook_variables(folder / "hook", {"count": True}, os.environ),
            "GPU": name,
            "ADVISOR_RUN": str(folder),
            "ADVISOR_HOOK_PATH": str(folder / "hook"),
            "ADVISOR_GRACE_S": str(ceil(terms.grace_s)),
            "PYTHONUNBUFFERED": "1",  # what a job prints is seen at once
            **({"ADVISOR_REPLACE": "1"} if terms.replace_instances else {}),
        }
        with (folder / "script.log").open("ab") as log, _on_cores(held):
            words = ["bash", str(folder / "script.sh")]
            process = subprocess.Popen(
                _between(words) if terms.tied else words,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[] if lock is None else [lock],
            )
        _STARTED.append(process)
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


def _between(words: Sequence[str]) -> list[str]:
    """The words of a process that has `words` as its child, and ends with this process.

    SIGTERM reaches the child however that process ends. Without it in between, Ray would kill the
    child at once, which then could not end its jobs: it kills all children of an actor that ends.
    """
    in_between = '"${@:1:3}" "$$" "${@:5}"; exit $?'  # its own process id instead of ours
    return tied_to_parent(["bash", "-c", in_between, "between", *tied_to_parent(words)])


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
        write_whole(folder / "plan.json", plans_text([plan], with_steps=True))
        write_whole(folder / "script.sh", script)
        write_whole(folder / "run.json", json.dumps(asdict(about), indent=1) + "\n")
        for start in plan.starts:
            create_progress(folder / f"job-{start.number}.progress")
    except OSError as error:
        raise AdvisorError(
            f"{folder}: {reason_of(error)}. Set XDG_STATE_HOME to a folder that can be written."
        ) from None


def _note(folder: Path, line: str) -> None:
    with suppress(OSError), (folder / "events").open("a") as events:  # a full disk ends nothing
        events.write(line + "\n")


def script_lives(folder: Path) -> bool:
    """Return whether the script of a run has not ended."""
    script = events_in(folder).script
    with suppress(OSError):
        variables = Path(f"/proc/{script}/environ").read_bytes().split(b"\0")
        return f"ADVISOR_RUN={folder}".encode() in variables
    return False


def stop(folder: Path, job: int | None, say: Say) -> None:
    """End a run, or one job of it; what a killed script left is undone.

    Raises:
        InvalidInput: It has no such job.
        AdvisorError: Something does not end.
    """
    about, events = read_about(folder), events_in(folder)
    state = state_file(about.device)
    if job is not None:
        if not (folder / f"job-{job}.progress").exists():
            numbers = sorted(int(path.stem[4:]) for path in folder.glob("job-*.progress"))
            raise InvalidInput(f"{folder.name} has jobs {', '.join(map(str, numbers))}, not {job}.")
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
    ask_to_end(folder)
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


def ask_to_end(folder: Path) -> None:
    """Ask the script of a run to end its jobs, and itself."""
    _note(folder, "asked 0")
    if script_lives(folder):
        with suppress(ProcessLookupError):
            os.kill(int(events_in(folder).script or 0), SIGTERM)


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


def state_home() -> Path:
    """Return the user's folder for states, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "advisor"


def state_file(device: str) -> Path:
    """Return the state file of a device of this machine, a UUID or ``"cpu"``."""
    return state_home() / "gpus" / f"{socket.gethostname()}-{device}.sh"


def lock_file(state: Path) -> Path:
    """Return the file that the script which wrote `state` locks while it lives."""
    return state.with_name(f"{state.name}.lock")


def left_states() -> tuple[Path, ...]:
    """Return the state files of this machine whose scripts were killed before they undid all."""
    paths = sorted(state_file("*").parent.glob(state_file("*").name))
    locks = {lock_file(path): path for path in paths if left_in(path)}
    return tuple(locks[lock] for lock in unowned(locks))


def left_in(path: Path) -> list[str]:
    """Return the changes in a state file that are not undone, the jobs' mark first.

    There are none if the file is gone, or the machine has restarted since.
    """
    text = _text(path)
    if f"# boot {boot_id()}" not in text.splitlines():
        return []
    undos = {}
    for line in re.findall(r"^undos\[\d+\]=.*$", text, re.MULTILINE):
        number, _, command = " ".join(shlex.split(line)).partition("=")
        undos[number] = command
    return [f"jobs {variable(path, 'mark')}", *(each for each in undos.values() if each != ":")]


def variable(path: Path, name: str) -> str:
    """Return the value of a variable in a state file; empty without it."""
    match = re.search(rf'^declare -- {name}="(.*)"$', _text(path), re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else ""


def jobs_left(left: Sequence[str]) -> list[int]:
    """Return the living processes of the jobs in `left`, from `left_in`."""
    marks = [line.partition(" ")[2] for line in left if line.startswith("jobs ")]
    return [pid for mark in marks for pid in processes_of("ADVISOR_MARK", f"{mark}-*")]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def boot_id() -> str:
    """Return the kernel's name for this start of the machine; empty if the kernel has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
