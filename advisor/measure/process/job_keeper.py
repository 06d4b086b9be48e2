"""Keeps one job: starts it, writes its log, ends all that it started, and records how it ended.

    python -I job_keeper.py '{"end": FILE, "log": FILE, ...}' COMMAND...

It outlives whoever started it, and needs the standard library alone. SIGTERM asks the job to end;
what is left after the grace is killed, under MPS after its server was asked to let go of it: a
client that is killed in the middle of its work can take the others with it (NVIDIA's MPS
documentation, terminate_client). Processes that the job leaves behind, in sessions of their own
too, are its children here (PR_SET_CHILD_SUBREAPER, prctl(2)), and end with it.
"""

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

RECORD_BYTES = 512
"""A record is written in place into a file of this size, which needs no room on a full disk."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_LIBC = ctypes.CDLL(None, use_errno=True)
_CONTROL = "nvidia-cuda-mps-control"
# How often a job is looked at where nothing wakes its keeper.
_LOOK_S = 0.5
_LONGEST_LINE = 65_536
# Of what a log had no room for, so much is added in the end: it tells how the job ended.
_LAST_BYTES = 2048
# Steps a second that no job takes.
_FASTEST = 1e9
# Processes that the kernel does not let end in that time hang in a driver.
_KILLED_S = 10.0


def put(descriptor: int, record: dict[str, Any]) -> None:
    """Write `record` over the one before it."""
    os.pwrite(descriptor, json.dumps(record).encode().ljust(RECORD_BYTES)[:RECORD_BYTES], 0)


def ended_lines(printed: bytes) -> tuple[list[bytes], bytes]:
    """Lines that have ended, also those that a progress bar writes over, and what comes after."""
    *lines, rest = re.split(rb"[\r\n]", printed)
    return lines, rest[-_LONGEST_LINE:]


class PrintedPace:
    """Steps of a job that are known by the pace that it prints alone, written where they are read.

    Args:
        throughput: Finds, as its one group, the examples a second until it was printed.
        batch: Examples of a step.
        progress: The file.
    """

    def __init__(self, throughput: str, batch: int, progress: str) -> None:
        self._pattern, self._batch = re.compile(throughput.encode()), batch
        self._progress = os.open(progress, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._line = b""
        self._steps = 0.0
        self._at: float | None = None

    def add(self, printed: bytes, now: float) -> None:
        """Take what was printed until `now`, seconds; an unfinished line waits for its rest."""
        lines, self._line = ended_lines(self._line + printed)
        for line in lines:
            if (found := self._pattern.search(line)) is not None:
                with suppress(ValueError):
                    self._add(float(found[1]) / self._batch, now)

    def _add(self, pace: float, now: float) -> None:
        """At its first figure a job has started; `pace` is in steps a second."""
        if self._at is None:
            self._at = now
        if not 0 < pace < _FASTEST:
            return
        self._steps += pace * (now - self._at)
        self._at = now
        whole = int(self._steps)
        put(self._progress, {"steps": whole, "at": now - (self._steps - whole) / pace})


class Keeper:
    """One job, its log and its end.

    Args:
        spec: ``end`` and ``log``: files; ``folder``: where the job runs; ``cores``: those it is
            pinned to, empty: any; ``grace_s``: seconds between asking it to end and killing it;
            ``mps``: whether it is a client of MPS; ``log_bytes``: of its log at most; ``paced``:
            the arguments of a `PrintedPace`, None where steps are counted otherwise.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._end = os.open(spec["end"], os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._log = os.open(spec["log"], flags, 0o600)
        self._room = int(spec["log_bytes"])
        self._pace = PrintedPace(**spec["paced"]) if spec["paced"] else None
        self._lost, self._last = 0, b""
        self._asked_at: float | None = None
        self._forced = False

    def keep(self, command: list[str]) -> None:
        """Run `command` to its end, however that comes."""
        wake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._signalled)
        output, inlet = os.pipe2(os.O_CLOEXEC)
        try:
            child = self._started(command, inlet)
        except (OSError, ValueError) as error:
            put(self._end, {"status": 127, "at": monotonic(), "detail": str(error)[:60]})
            return
        finally:
            os.close(inlet)
        put(self._end, {"pid": child.pid})
        self._watch(child, output, wake)
        left = self._end_rest(child.pid)
        self._drain(output)
        self._add_last_words()
        put(self._end, self._record(child, left))

    def _signalled(self, number: int, _frame: object) -> None:
        if number == signal.SIGTERM and self._asked_at is None:
            self._asked_at = monotonic()

    def _started(self, command: list[str], inlet: int) -> "subprocess.Popen[bytes]":
        # In a process group of its own, which is asked to end as a whole.
        return subprocess.Popen(
            command, cwd=self._spec["folder"], stdin=subprocess.DEVNULL, stdout=inlet,
            stderr=inlet, preexec_fn=_tied, process_group=0,  # noqa: PLW1509 - no thread is here
        )  # fmt: skip

    def _watch(self, child: "subprocess.Popen[bytes]", output: int, wake: int) -> None:
        asked, sources = False, [output, wake]
        while child.poll() is None:
            ready = select.select(sources, [], [], _LOOK_S)[0]
            if wake in ready:
                with suppress(BlockingIOError):
                    os.read(wake, 4096)
            if output in ready and not self._pump(output):
                sources = [wake]
            if self._asked_at is not None and not asked:
                asked = True
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGTERM)
            if self._asked_at is not None and monotonic() - self._asked_at > self._spec["grace_s"]:
                self._forced = True
                self._release(child.pid)
                _kill_descendants()
        child.wait()

    def _pump(self, output: int) -> bool:
        """Whether more may come; what the log has no room for is counted, and lost."""
        chunk = os.read(output, 65536)
        if self._pace is not None:
            self._pace.add(chunk, monotonic())
        kept = chunk[: max(0, self._room)]
        written = 0
        with suppress(OSError):  # a full disk must not end the job
            written = os.write(self._log, kept)
        self._room -= written
        self._lost += len(chunk) - written
        self._last = (self._last + chunk[written:])[-_LAST_BYTES:]
        return bool(chunk)

    def _drain(self, output: int) -> None:
        while select.select([output], [], [], 0)[0] and self._pump(output):
            pass

    def _add_last_words(self) -> None:
        """Add to a log that had no room what came last."""
        if self._lost:
            with suppress(OSError):
                os.write(self._log, b"\n[%d bytes have no room here]\n" % self._lost + self._last)

    def _end_rest(self, pid: int) -> int:
        """End what the job left behind; how many processes that were."""
        left = descendants()
        if left:
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGTERM)
            until = monotonic() + min(2.0, self._spec["grace_s"])
            while _reaped_descendants() and monotonic() < until:
                sleep(0.02)
            self._release(pid)
            _kill_descendants()
        return len(left)

    def _release(self, _pid: int) -> None:
        """Have the MPS server let go of the job's processes, before they are killed."""
        if not self._spec["mps"]:
            return
        clients = descendants()
        for server in _asked("get_server_list").split():
            for client in clients:
                _asked(f"terminate_client {server} {client}")

    def _record(self, child: "subprocess.Popen[bytes]", left: int) -> dict[str, Any]:
        return {
            "pid": child.pid, "status": child.returncode, "at": monotonic(),
            "asked": self._asked_at is not None, "forced": self._forced, "left": left,
            "lost_bytes": self._lost,
        }  # fmt: skip


def _asked(request: str) -> str:
    """What the MPS daemon answers; empty if it does not."""
    try:
        answer = subprocess.run(
            [_CONTROL], input=request + "\n", capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def _tied() -> None:
    """In the child: it ends with its keeper, even one that is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def descendants() -> list[int]:
    """Every process that this one started or took over, and theirs."""
    children: dict[int, list[int]] = {}
    for folder in os.listdir("/proc"):  # noqa: PTH208 - thousands of paths would be made for it
        if folder.isdigit():
            with suppress(OSError, IndexError, ValueError):
                stat = Path(f"/proc/{folder}/stat").read_text(errors="replace")
                state, parent = stat.rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(folder))
    found, level = [], [os.getpid()]
    while level:
        level = [child for each in level for child in children.get(each, [])]
        found += level
    return found


def _reaped_descendants() -> list[int]:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return descendants()


def _kill_descendants() -> None:
    """Stop all first: a process that forks as fast as it is killed would never end."""
    until = monotonic() + _KILLED_S
    while (left := descendants()) and monotonic() < until:
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each, how)
        sleep(0.02)


def main(words: list[str]) -> None:
    """Keep the job that `words` describe: a spec as JSON, then its command."""
    spec = json.loads(words[0])
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    Keeper(spec).keep(words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
