"""A program that runs, and the pace that it prints: no hook, only its output on a pipe."""

import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psutil

from benchmarks.programs.prepare import environment_of, working_folder
from benchmarks.programs.program_list import Program

_LEAST_APART_S = 0.1  # of stamps that are kept; some programs print a line a millisecond
_TAIL_LINES = 15
_LONGER_S = 45.0  # a window waits so much longer for a program that prints seldom
_LINE_END = re.compile(rb"[\r\n]+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Running:
    """A program from its start to the end of its process group.

    Attributes:
        stamps: Seconds since `began` and the steps that a line reported then; two kept stamps are
            some time apart, unless the count began again.
    """

    def __init__(
        self,
        program: Program,
        checkouts: Path,
        added: Mapping[str, str],
        cores: Sequence[int],
        began: float,
    ) -> None:
        self.program, self.stamps = program, list[tuple[float, float]]()
        self._began, self._lines, self._tail = began, 0, deque[str](maxlen=_TAIL_LINES)
        floating = f"exec taskset -c {','.join(map(str, cores))} {program.command}"
        self._process = subprocess.Popen(
            floating,
            shell=True,
            cwd=working_folder(program, checkouts),
            start_new_session=True,
            env={**environment_of(program, checkouts), **added},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    @property
    def tail(self) -> str:
        """Its last lines."""
        return "\n".join(self._tail)[-2000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        rest, rest_at_s = b"", 0.0  # a line counts from its first byte: progress bars end it late
        with self._process.stdout as pipe:
            while chunk := os.read(pipe.fileno(), 65536):
                at_s = time.monotonic() - self._began
                first, *lines = _LINE_END.split(chunk)
                rest_at_s = rest_at_s if rest else at_s
                rest += first
                for line in lines:
                    self._note(_COLOUR.sub("", rest.decode(errors="replace")), rest_at_s)
                    rest, rest_at_s = line, at_s

    def _note(self, line: str, at_s: float) -> None:
        if line.strip():
            self._tail.append(line[:300])
        steps = self.program.printed_steps(line, self._lines)
        if steps is None:
            return
        self._lines += 1
        if self.stamps:
            last_s, last = self.stamps[-1]
            if steps == last or (steps > last and at_s - last_s < _LEAST_APART_S):
                return
        self.stamps.append((round(at_s, 4), steps))

    def end(self) -> None:
        """End it and all that it started, also what left its process group."""
        living = []
        with suppress(psutil.NoSuchProcess):
            living = psutil.Process(self._process.pid).children(recursive=True)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            for process in living:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            _, living = psutil.wait_procs(living, timeout=2)
        self._process.wait()
        self._reader.join(2)


def run_together(
    programs: Sequence[Program],
    checkouts: Path,
    added: Sequence[Mapping[str, str]],
    cores: Sequence[int],
    *,
    window_s: float,
    start_s: float,
) -> dict[str, Any]:
    """Run programs together; return their stamps and the window in which all printed a pace.

    Args:
        programs: What runs.
        checkouts: Where their folders are.
        added: Variables to set for each, shape (programs,).
        cores: Host cores over which all of them float.
        window_s: Seconds after the last program printed its first two paces; a program that prints
            seldom prolongs them until it has printed another.
        start_s: Seconds after which a program that has printed none is waited for no longer.
    """
    began = time.monotonic()
    running: list[Running] = []
    try:
        for program, variables in zip(programs, added, strict=True):
            running.append(Running(program, checkouts, variables, cores, began))
        opened_s = _wait(running, start_s, lambda each: len(each.stamps) >= 2)
        all_print = all(len(each.stamps) >= 2 for each in running)
        if all_print:
            opened_s = max(each.stamps[1][0] for each in running)
        closed_s = _wait(running, opened_s + window_s, lambda _: False)
        if all_print:
            closed_s = _wait(
                running, closed_s + _LONGER_S, lambda each: each.stamps[-1][0] > opened_s
            )
        codes = [each.exit_code for each in running]
    finally:
        for each in running:
            each.end()
    return {
        "window": [opened_s, closed_s],
        "jobs": [
            {"name": each.program.name, "exit": code, "stamps": each.stamps, "tail": each.tail}
            for each, code in zip(running, codes, strict=True)
        ],
    }


def _wait(running: Sequence[Running], until_s: float, done: Any) -> float:
    """Wait until all are done, one has ended, or it is late; return seconds since the start."""
    began = running[0]._began
    while time.monotonic() - began < until_s:
        if any(each.exit_code is not None for each in running) or all(map(done, running)):
            break
        time.sleep(0.05)
    return round(time.monotonic() - began, 4)
