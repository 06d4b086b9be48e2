"""Signals at every line of the Python that starts and watches a run: what is left, and what hangs.

    python -m benchmarks.run_faults --count 60 --seed 1

As `benchmarks.faults`, for the process of `advisor run --apply`: Ctrl-C ends its jobs; whatever
else ends it leaves nothing, or a run that `advisor stop` ends.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from advisor.measure.device import Device
from advisor.run import start as runner
from advisor.run import watch as watching
from benchmarks.faults import Drill, Outcome, drilled, drilling, meets, report
from tests.handed import H200
from tests.run.machine import prepared

FAULTS = (
    *(f"{each} to the script" for each in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL")),
    "SIGINT twice to its group",
)
_WATCHED = {each.__file__ for each in (runner, watching)}
_RUN = ("-m", "benchmarks.run_faults", "--child")
_STOP = """\
from advisor.run.start import stop
from advisor.run.watch import run_folders
for folder in run_folders():
    stop(folder, None, print)
"""


def main_of_run() -> None:
    """Start a plan on a GPU of `SmiMachine` and watch it, in a process of its own."""
    device = Device("cuda", os.environ["FAULT_GPU"], H200.key, "NVIDIA H200", "580")
    for module in (runner, watching):
        vars(module)["find_device"] = lambda *_, **__: device
    vars(runner)["refuse_busy"] = vars(watching)["Meter"] = lambda _: None
    code = f"exec /usr/bin/sleep {os.environ['FAULT_JOBS_LAST']}"
    plans = [prepared("mps=40,60", code, code, cap_w=350.0)]
    sys.settrace(partial(_traced, set()))
    try:
        with runner.started(plans, ["0"], runner.StartTerms(grace_s=1), print) as folders:
            watchers = [watching.Watcher(each, print) for each in folders]
            sys.exit(watching.watch(watchers, say=print, show=lambda _: None))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _traced(seen: set[str], frame: FrameType, _event: str, _arg: object) -> Any:
    """Stop before the first time that the line of the fault runs."""
    if frame.f_code.co_filename not in _WATCHED:
        return None
    at = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    if at not in seen:
        seen.add(at)
        if log := os.environ["FAULT_LOG"]:
            with Path(log).open("a") as lines:
                lines.write(f"{at}\n")
        if at == os.environ["FAULT_AT"]:
            port = int(os.environ["FAULT_PORT"])
            with socket.create_connection(("127.0.0.1", port)) as asked:
                asked.recv(10)
    return partial(_traced, seen)


def _process(
    drill: Drill, *words: str, lasting: str = "600", **more: str
) -> "subprocess.Popen[bytes]":
    drill.machine.script = 0
    variables = drill.variables(
        PYTHONPATH=os.pathsep.join(sys.path),
        TMPDIR=str(drill.folder),
        FAULT_GPU=drill.machine.uuid,
        FAULT_JOBS_LAST=lasting,
        **more,
    )
    with (drill.folder / "printed").open("ab") as printed:
        drill.script = subprocess.Popen(
            ["env", "--default-signal=HUP,INT,QUIT,PIPE", sys.executable, *words],
            cwd=drill.folder,
            env=variables,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
        )
    drill.machine.script = drill.script.pid
    return drill.script


@cache
def lines_of_run() -> list[str]:
    """Return the lines that the process comes to without a fault."""
    with drilling("limits", Random(0)) as drill:
        log = drill.folder / "lines"
        code = _process(drill, *_RUN, lasting="0.4", FAULT_LOG=str(log)).wait()
        assert (code, drill.left()) == (0, {}), drill.printed
        return log.read_text().split()


def outcome(seed: int, bound_s: float, number: int) -> Outcome:
    """Run the drill of that number; a process that runs for `bound_s` hangs."""
    draw = Random(f"{seed}-{number}")
    fault = FAULTS[number % len(FAULTS)]
    result = Outcome(fault, 1, "advisor run --apply", draw.choice(lines_of_run()))
    with drilling("limits", draw) as drill:
        with meets(drill, fault) as variables:
            process = _process(drill, *_RUN, FAULT_AT=result.at, **variables)
            try:
                result.code = process.wait(bound_s)
            except subprocess.TimeoutExpired:
                result.left, result.wrong = drill.left(), drill.printed
                return result
        number_of = int(signal.Signals[fault.split()[0]])
        if result.code not in (128 + number_of, -number_of):
            result.wrong = f"exit code {result.code}: {drill.printed}"
        if number_of != signal.SIGINT:
            _process(drill, "-c", _STOP).wait()
        if not drill.gone(1.0):
            result.left = drill.left()
            result.wrong += drill.printed
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        main_of_run()
    report(drilled(range(options.count), partial(outcome, options.seed, 60.0)))


if __name__ == "__main__":
    main()
