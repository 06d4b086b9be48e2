"""Faults at every line of exported scripts, on one GPU and on two: what is left, and what hangs.

    python -m benchmarks.faults --count 300 --seed 1

A seed draws the plan, the fault, and the line of one of the script's shells before which it
happens: bash stops there, in a DEBUG trap, and asks this process. nvidia-smi and MPS are stand-ins.
Once a script has ended, all that it started and changed must be gone. If it was killed, that must
be gone after the next script, or after `advisor doctor --undo`. Exits with 1 if it is not.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path
from random import Random
from socketserver import StreamRequestHandler, ThreadingTCPServer
from tempfile import TemporaryDirectory
from threading import Lock, Thread, Timer
from time import monotonic, sleep
from typing import NoReturn
from uuid import uuid4

import psutil

from advisor.launch.launch_plan import LaunchPlan
from advisor.measure.process import processes_of
from tests.handed import JOBS, handed, on_gpus, write
from tests.launch.scripts_on_machine import left_on
from tests.launch.smi_stand_in import SmiMachine

PLANS: dict[str, LaunchPlan | tuple[LaunchPlan, ...]] = {
    "limits": handed("mps=43,57.5"),
    "power cap": handed("mps[1,2];serial[3]", JOBS, cap_w=350.0),
    "queue": handed("naive/2[3,1,2]", JOBS),
    "instances": handed("mig=4g.71gb[1]+3g.71gb[2,3]/mps", JOBS),
    "two GPUs": on_gpus(("mps", JOBS[:2], 350.0), ("naive", JOBS[2:], 300.0)),
    "two queues": on_gpus(("mps/2", JOBS), ("mps=40,60", JOBS[:2])),
}

# A line is named by the depth of the shell, its GPU, and how many commands it did before.
_HOOK = """\
unset BASH_ENV
fault_line=0
set -T
trap 'fault_at="$BASH_SUBSHELL ${GPU-} $((++fault_line))"
  [ -z "$FAULT_LOG" ] || echo "$fault_at" >> "$FAULT_LOG"
  [ "$fault_at" != "$FAULT_AT" ] || {
    exec {fault_fd}<> "/dev/tcp/127.0.0.1/$FAULT_PORT"; read -r fault_do <&"$fault_fd" || :
    exec {fault_fd}>&-; eval "$fault_do"; }' DEBUG
"""
_TOOLS = {
    "sudo": 'exec "$@"',
    # Scripts wait a tenth as long.
    "sleep": "exec /usr/bin/sleep 0.02",
    "timeout": 'while [[ $1 = -* ]]; do shift; done; exec /usr/bin/timeout --foreground 3 "${@:2}"',
} | dict.fromkeys(
    (f"{job.name}.sh" for job in JOBS),
    """\
case $JOBS_ARE in
deaf) trap '' TERM; while :; do /usr/bin/sleep 600; done ;;
endless) exec /usr/bin/sleep 600 ;;
*) exec /usr/bin/sleep 0.4 ;;
esac""",
)


@dataclass
class Drill:
    """A script among its stand-ins, and how it ended."""

    folder: Path
    plan: str
    draw: Random
    machine: SmiMachine = field(default_factory=SmiMachine)
    mark: str = field(default_factory=lambda: uuid4().hex)
    mute: bool = False

    def __post_init__(self) -> None:
        self.machine.mode = [self.mode] * 2
        for name, text in _TOOLS.items():
            (self.folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.folder / name).chmod(0o755)
        (self.folder / "plan.sh").write_text(write("commands", PLANS[self.plan]))
        (self.folder / "hook").write_text(_HOOK)

    @property
    def mode(self) -> str:
        return "Enabled" if self.plan == "instances" else "Disabled"

    def variables(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "ADVISOR_GRACE_S": "1",
            "FAULT_MARK": self.mark,
            "FAULT_LOG": "",
            "FAULT_AT": "nowhere",
            "FAULT_PORT": "",
            **more,
        }

    def start(self, **more: str) -> "subprocess.Popen[bytes]":
        """Start the script, heeding all signals, as the leader of a process group."""
        self.machine.script = 0
        with (self.folder / "printed").open("ab") as printed:
            self.script = subprocess.Popen(
                ["env", "--default-signal=HUP,INT,QUIT,PIPE", "bash", "plan.sh"],
                cwd=self.folder,
                env=self.variables(BASH_ENV=str(self.folder / "hook"), **more),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        self.machine.script = self.script.pid
        return self.script

    @property
    def printed(self) -> str:
        return (self.folder / "printed").read_text(errors="replace")

    def left(self) -> dict[str, object]:
        """Return what the script left: processes, locks, and all that `left_on` looks for."""
        own = {
            "processes": [_command(pid) for pid in processes_of("FAULT_MARK", self.mark)],
            "locks": [path.name for path in self.folder.rglob("*.lock") if not _free(path)],
        }
        there = {what: each for what, each in own.items() if each}
        return there | left_on(self.machine, self.mode, self.folder)

    def gone(self, seconds: float) -> bool:
        """Return whether nothing is left within `seconds`."""
        until_s = monotonic() + seconds
        while self.left():
            if monotonic() > until_s:
                return False
            sleep(0.05)
        return True

    def shells(self) -> list[int]:
        """Return the shells that the script forked, e.g. those of GPUs."""
        with suppress(psutil.Error):
            children = psutil.Process(self.machine.script).children(recursive=True)
            return [each.pid for each in children if each.cmdline()[-1:] == ["plan.sh"]]
        return []

    def jobs(self) -> list[int]:
        """Return the processes of its jobs."""
        of_mps = set(processes_of("ADVISOR_MARK", "mps-*"))
        own = set(processes_of("FAULT_MARK", self.mark)) - of_mps
        return sorted(own & set(processes_of("ADVISOR_MARK", "*")))

    def end(self) -> None:
        """Kill all that is left."""
        for pid in processes_of("FAULT_MARK", self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _free(lock: Path) -> bool:
    with lock.open() as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _command(pid: int) -> str:
    with suppress(psutil.Error):
        return f"{pid}: {' '.join(psutil.Process(pid).cmdline())[:60]}"
    return str(pid)


Fault = Callable[[Drill], None]


def to_script(number: signal.Signals) -> Fault:
    def send(drill: Drill) -> None:
        with suppress(ProcessLookupError):
            os.kill(drill.machine.script, number)

    return send


def to_group(number: signal.Signals, times: int = 1) -> Fault:
    def send(drill: Drill) -> None:
        for _ in range(times):
            with suppress(ProcessLookupError):
                os.killpg(drill.machine.script, number)
            sleep(drill.draw.choice((0.0, 0.001, 0.004, 0.02)))

    return send


def to_one_of(targets: Callable[[Drill], Sequence[int]], number: signal.Signals) -> Fault:
    """Send a signal to a process of `targets`, once there is one."""

    def send(drill: Drill) -> None:
        while drill.script.poll() is None:
            with suppress(ProcessLookupError):
                if pids := targets(drill):
                    os.kill(drill.draw.choice(pids), number)
                    return
            sleep(0.01)

    return send


def end_daemons(drill: Drill) -> None:
    while drill.script.poll() is None and not drill.machine.daemons:
        sleep(0.01)
    drill.machine.daemons.clear()


def in_next_call(how: str) -> Fault:
    """Have the next call of nvidia-smi or MPS go wrong."""

    def spoil(drill: Drill) -> None:
        drill.machine.fault = (len(drill.machine.calls), how)

    return spoil


def remove_state_folder(drill: Drill) -> None:
    folder = drill.folder / "state" / "advisor" / "gpus"
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.touch()  # none can be made there


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ENDING: dict[str, Fault] = {
    **{f"{each.name} to the script": to_script(each) for each in _SIGNALS},
    **{f"{each.name} to its group": to_group(each) for each in _SIGNALS},
    "SIGTERM twice to its group": to_group(signal.SIGTERM, 2),
    "SIGINT twice to its group": to_group(signal.SIGINT, 2),
}
"""Faults that end a script, even if its jobs go on for ever."""
KILLING: dict[str, Fault] = {
    "SIGKILL to the script": to_script(signal.SIGKILL),
    "SIGKILL to its group": to_group(signal.SIGKILL),
}
"""Faults after which no shell of the script may be left to undo what it changed."""
AFTERWARDS: dict[str, Fault] = {
    "SIGKILL to a shell of it": to_one_of(Drill.shells, signal.SIGKILL),
    "SIGTERM to a shell of it": to_one_of(Drill.shells, signal.SIGTERM),
    "SIGKILL to a job": to_one_of(Drill.jobs, signal.SIGKILL),
    "SIGTERM to a job": to_one_of(Drill.jobs, signal.SIGTERM),
    "the MPS daemon dies": end_daemons,
}
"""Faults that wait until the script has gone so far."""
# What the shell at the line does itself; no limit reaches those that run already.
IN_SHELL = {
    "the disk is full": "trap '' XFSZ; ulimit -f 0",
    "its output is closed": "exec > >(:) 2>&1; sleep 1",
}
FAULTS: dict[str, Fault] = {
    **ENDING,
    **KILLING,
    **AFTERWARDS,
    **dict.fromkeys(IN_SHELL, lambda _: None),
    "the state folder is gone": remove_state_folder,
    "a call fails": in_next_call("fails"),
    "a call fails, but worked": in_next_call("worked"),
    "a call does nothing": in_next_call("lies"),
    "a call hangs": in_next_call("hangs"),
}


@contextmanager
def meets(drill: Drill, fault: str) -> Iterator[dict[str, str]]:
    """Have the first shell that reaches the line meet the fault; yield variables for the script.

    If none does, because jobs do not end before the fault, it happens after some seconds.
    """
    turn, before = Lock(), fault not in AFTERWARDS and drill.draw.random() < 0.5
    delay_s = drill.draw.choice((0.0, 0.001, 0.003, 0.01, 0.03))

    class Line(StreamRequestHandler):
        def handle(self) -> None:
            first = turn.acquire(blocking=False)
            while not drill.machine.script:  # its first lines may come before we know its number
                sleep(0.001)
            with suppress(OSError):
                if first and before:
                    FAULTS[fault](drill)
                    sleep(delay_s)
                self.wfile.write(f"{IN_SHELL.get(fault, ':') if first else ':'}\n".encode())
            with suppress(OSError):
                if first and not before:
                    sleep(delay_s)
                    FAULTS[fault](drill)

    with ThreadingTCPServer(("127.0.0.1", 0), Line) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        late = Timer(4.0, lambda: turn.acquire(blocking=False) and FAULTS[fault](drill))
        late.start()
        yield {"FAULT_PORT": str(server.server_address[1])}
        late.cancel()
        late.join()
        turn.acquire(blocking=False)  # a shell that lives on meets nothing any more
        server.shutdown()


@dataclass
class Outcome:
    """How a script ended: `left` after all that may undo it, and `code` None if it hung."""

    fault: str
    gpus: int
    plan: str
    at: str
    code: int | None = None
    wrong: str = ""
    left: dict[str, object] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return self.code is not None and not self.wrong and not self.left


def outcome(seed: int, bound_s: float, plans: Sequence[str], number: int) -> Outcome:
    """Run the drill of that number; a script that runs for `bound_s` after its fault hangs."""
    draw = Random(f"{seed}-{number}")
    cases = list(product(FAULTS, (1, 2)))
    fault, gpus = cases[number % len(cases)]
    plan = draw.choice([each for each in plans if ("two" in each) == (gpus == 2)])
    lines = lines_of(plan)
    result = Outcome(fault, gpus, plan, draw.choice(lines))
    with drilling(plan, draw) as drill:
        dirty = draw.random() < 0.2
        if dirty:  # a killed script left something
            with meets(drill, "SIGKILL to its group") as variables:
                drill.start(FAULT_AT=draw.choice(lines), **variables).wait()
            while drill.jobs():
                sleep(0.05)
        by_doctor = fault in KILLING and draw.random() < 0.5
        jobs = draw.choice(("endless", "deaf")) if fault in ENDING or by_doctor else "quick"
        if gpus == 2 and fault == "SIGKILL to the script":
            jobs = "quick"  # the shells of the GPUs go on, as they should
        with meets(drill, fault) as variables:
            script = drill.start(FAULT_AT=result.at, JOBS_ARE=jobs, **variables)
            try:
                result.code = script.wait(bound_s)
            except subprocess.TimeoutExpired:
                result.left = drill.left()
                result.wrong = drill.printed
                return result
        if fault in ENDING:
            expected = int(signal.Signals[fault.split()[0]])
            if result.code not in (128 + expected, -expected):
                result.wrong = f"exit code {result.code}: {drill.printed}"
        if not drill.gone(0 if fault in KILLING else 5.0) and (fault in KILLING or dirty):
            _undo(drill, by_doctor=by_doctor)
        if not drill.gone(5.0):
            result.left = drill.left()
            result.wrong += drill.printed
    return result


@contextmanager
def drilling(plan: str, draw: Random) -> Iterator[Drill]:
    with TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        drill = Drill(Path(folder), plan, draw)
        server = drill.machine.install(drill.folder)
        try:
            yield drill
        finally:
            drill.end()
            for uuid in (drill.machine.uuid, *drill.machine.others):
                for pipes in Path("/tmp").glob(f"advisor-mps-*-{uuid}-*"):
                    shutil.rmtree(pipes)
            drill.machine.released.set()
            server.shutdown()
            server.server_close()


_DOCTOR = "from advisor.run.start import undo_left; print(*undo_left())"


def _undo(drill: Drill, *, by_doctor: bool) -> None:
    """Do what a user does about what a killed script left."""
    if by_doctor:
        more = {"PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, "-c", _DOCTOR]
        subprocess.run(
            words,
            env=drill.variables(**more),
            cwd=drill.folder,
            check=False,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )
        return
    until_s = monotonic() + 30
    while monotonic() < until_s and drill.start().wait(60) and "jobs of a killed" in drill.printed:
        (drill.folder / "printed").unlink()


@cache
def lines_of(plan: str) -> list[str]:
    """Return the lines that the shells of a script come to without a fault."""
    with drilling(plan, Random(0)) as drill:
        log = drill.folder / "lines"
        code = drill.start(FAULT_LOG=str(log)).wait()
        assert (code, drill.left()) == (0, {}), drill.printed
        return sorted(set(log.read_text().splitlines()))


def drilled(numbers: Sequence[int], run: Callable[[int], Outcome]) -> Iterator[Outcome]:
    """Yield the outcomes of drills in order, two of which run at a time."""
    with ThreadPoolExecutor(2) as pool:
        for number, each in zip(numbers, pool.map(run, numbers), strict=True):
            if not each.good:
                print(json.dumps({"number": number, **vars(each)}), file=sys.stderr, flush=True)
            yield each


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a row for each fault and number of GPUs, of how many scripts ended badly."""
    rows = defaultdict[tuple[str, int], list[Outcome]](list)
    for each in outcomes:
        rows[each.fault, each.gpus].append(each)
    yield "| fault | GPUs | scripts | something left | hung | wrong exit code |"
    yield "|---|---|---|---|---|---|"
    for (fault, gpus), own in sorted([*rows.items(), (("all", 0), list(outcomes))]):
        hung = sum(each.code is None for each in own)
        left = sum(each.code is not None and bool(each.left) for each in own)
        wrong = sum(each.wrong.startswith("exit code") for each in own)
        yield f"| {fault} | {gpus or ''} | {len(own)} | {left} | {hung} | {wrong} |"


def report(outcomes: Iterator[Outcome]) -> NoReturn:
    """Print the table, and exit with 1 if a drill ended badly."""
    own = list(outcomes)
    print("\n".join(table(own)))
    sys.exit(not all(each.good for each in own))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run the drill of this number alone")
    parser.add_argument("--bound", type=float, default=60.0, help="seconds after which one hangs")
    options = parser.parse_args()
    numbers = range(options.count) if options.only is None else [options.only]
    report(drilled(numbers, partial(outcome, options.seed, options.bound, tuple(PLANS))))


if __name__ == "__main__":
    main()
