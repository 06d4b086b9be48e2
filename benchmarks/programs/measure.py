"""Measures the drawn programs and workloads of the zoo: profiles, each alone, mixes of them.

    python -m benchmarks.programs.measure CHECKOUTS --out results.jsonl --devices 0,1,2,3

A host measures a part of the mixes (``--mixes 0 10``: the first ten) and the jobs that are in them,
and some mixes again, which shows how far two runs of a mix differ.

`benchmarks.programs.prepare` prepares CHECKOUTS. Each GPU works on its own, with its part of the
host's cores, over which its programs float. Each result is a line of the file from the moment that
it is there; what the file holds is not measured again, so a second call goes on where a deadline
ended the first. `research/programs.py` reads the file.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Lock, Thread
from typing import Any

from advisor.hardware.live_gpu import live_gpu
from advisor.hardware.machine import split_cores
from advisor.measure.bench import MpsSession, tenant_environments
from advisor.measure.device import Device
from advisor.measure.inside.clocks import host_check_s
from advisor.sharing import parse_sharing
from benchmarks.programs.prepare import environment_of, working_folder
from benchmarks.programs.printed import run_together
from benchmarks.programs.program_list import (
    LIST,
    MIXES,
    SEED,
    Program,
    draw_mixes,
    draw_programs,
    draw_workloads,
    read_programs,
)

MODES = ("naive", "mps", "mps-limits")
_PROFILE_S = 300.0  # a profile that takes longer is cut off
_START_S = 90.0  # five programs import torch on 16 cores
_END_S = 8.0
_CHECKS = 20


def sharing_of(mode: str, jobs: int) -> str:
    """Return the notation of `mode` for so many jobs; limits are equal parts."""
    return "mps=" + ",".join([str(100 // jobs)] * jobs) if mode == "mps-limits" else mode


class Results:
    """The file of results: a JSON object a line, written as soon as it is there."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.is_file() else []
        self.done = {json.loads(line)["id"] for line in lines}

    def add(self, result: Mapping[str, Any]) -> None:
        """Append a result."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(result, separators=(",", ":")) + "\n")
            self.done.add(result["id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A GPU with its part of the host's cores and a tree of checkouts of its own.

    Attributes:
        uuid: None on a CPU.
        scratch: For pipes of MPS; a short path.
        until: When its last result must be there, on the monotonic clock.
    """

    device: str
    uuid: str | None
    cores: tuple[int, ...]
    checkouts: Path
    scratch: Path
    until: float
    results: Results

    @property
    def left_s(self) -> float:
        """Seconds until then."""
        return self.until - time.monotonic()

    def profile(self, program: Program, probe: bool) -> dict[str, Any]:
        """Profile a program by the command line, as a user does."""
        words = [sys.executable, "-m", "advisor", "profile", "--device", self.device]
        words += ["--out", str(self.scratch), "--cores", ",".join(map(str, self.cores))]
        words += ["--probe"] if probe else []
        zoo = program.kind == "zoo"
        words += [program.name] if zoo else ["--name", program.name, "--"]
        shown = " ".join(words) + ("" if zoo else f" {program.command}")
        began = time.monotonic()
        file = self.scratch / f"{program.name}.json"
        file.unlink(missing_ok=True)
        process = subprocess.Popen(
            shown,
            shell=True,
            cwd=working_folder(program, self.checkouts),
            env=environment_of(program, self.checkouts),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        printed = ""
        for wait_s, late in ((min(self.left_s, _PROFILE_S), 15), (15, 9), (15, 9)):
            try:
                printed, _ = process.communicate(timeout=wait_s)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, late)  # at SIGTERM, the advisor ends what it started
        return {
            "kind": "zoo" if zoo else "programs",
            "exit": process.returncode,
            "seconds": round(time.monotonic() - began, 2),
            "tail": printed[-3000:],
            "command": program.command,
            "profile": json.loads(file.read_text()) if file.is_file() else None,
        }

    def together(self, programs: Sequence[Program], mode: str, window_s: float) -> dict[str, Any]:
        """Run programs together, or one alone, and time them by their prints."""
        sharing = parse_sharing(sharing_of(mode, len(programs)))
        folder = self.scratch / "mps"
        device = Device("cuda" if self.uuid else "cpu", self.uuid, "", "", None)
        with closing(MpsSession(device, folder)) as session:
            if sharing.under_mps and self.uuid:
                session.switch_to(sharing)
            added = tenant_environments(sharing, len(programs), folder, self.uuid)
            ran = run_together(
                programs,
                self.checkouts,
                added,
                self.cores,
                window_s=window_s,
                start_s=min(_START_S, self.left_s - window_s),
            )
        return {"sharing": str(sharing), "mode": mode, **ran}


@dataclass(frozen=True, slots=True)
class Task:
    """What one result needs: its id, the least seconds, and how a place makes it."""

    id: str
    needed_s: float
    make: Callable[[Place], dict[str, Any]]


def tasks_of(options: argparse.Namespace) -> list[tuple[Task, ...]]:
    """All tasks, in groups for one GPU: those of each job, then each mix, in shuffled order.

    A host's pace changes within seconds, so a job alone is timed before and after its profile.
    """
    programs = draw_programs(read_programs(options.list))
    drawn = {job.name: job for job in (*programs, *(draw_workloads() if options.zoo else ()))}
    numbered = list(enumerate(draw_mixes(list(drawn))))[slice(*options.mixes)]
    mixed = {name for _, names in numbered for name in names}
    jobs = {name: job for name, job in drawn.items() if name in mixed}
    groups = []
    for name, job in jobs.items():
        profiled = partial(Place.profile, program=job, probe=options.probe)
        alone = partial(Place.together, programs=[job], mode="naive", window_s=options.alone_s)
        alone_s = options.alone_s + 15
        groups.append(
            tuple(
                Task(each, needed_s, make)
                for each, needed_s, make in (
                    (f"alone/{name}", alone_s, alone),
                    (f"profile/{name}", 45, profiled),
                    (f"alone/{name}/again", alone_s, alone),
                )
                if each.partition("/")[0] in options.parts
            )
        )
    if "mixes" in options.parts:
        mixes = [
            Task(
                f"mix/{number:02d}/{mode}",
                options.mix_s + 25,
                partial(
                    Place.together,
                    programs=[jobs[name] for name in names],
                    mode=mode,
                    window_s=options.mix_s,
                ),
            )
            for number, names in numbered
            for mode in options.modes
        ]
        random.Random(SEED).shuffle(mixes)  # so that a deadline leaves out none of the modes
        again = [replace(task, id=f"{task.id}/again") for task in mixes[: options.again]]
        groups += [(task,) for task in (*mixes, *again)]
    return groups


def work(place: Place, todo: Queue[tuple[Task, ...]], failed: Event) -> None:
    """Do groups of tasks until none is left; leave out those for which too little time is left."""
    os.sched_setaffinity(0, place.cores)  # of this thread
    with suppress(Empty):
        while True:
            for task in todo.get_nowait():
                if task.id not in place.results.done and place.left_s >= task.needed_s + _END_S:
                    _do(task, place, failed)


def _do(task: Task, place: Place, failed: Event) -> None:
    """Check the pace of a core, do `task`, and keep and print its result."""
    left_s, check_s = place.left_s, host_check_s(_CHECKS)
    try:
        result = task.make(place)
    except Exception as error:  # the others are still of use
        result = {"error": f"{type(error).__name__}: {error}"}
        failed.set()
    place.results.add({"id": task.id, "device": place.device, "check_s": check_s, **result})
    print(f"[{place.device} {left_s:4.0f} s left] {task.id}: {_short(result)}", flush=True)


def _short(result: Mapping[str, Any]) -> str:
    if "jobs" not in result:
        words = {key: result.get(key) for key in ("seconds", "exit", "error")}
        return f"{words} {result.get('tail', '')[-120:]!r}"
    ends = [(job["name"], len(job["stamps"]), job["exit"]) for job in result["jobs"]]
    return f"window {result['window']}, stamps {ends}"


def linked_tree(checkouts: Path, folder: Path) -> Path:
    """Return a copy of the checkouts, whose large files are hard links, for one GPU alone."""

    def copy(source: str, target: str) -> None:
        """Copy a small file, which a program might write to, and link a larger one."""
        if Path(source).stat().st_size < 2**16:
            shutil.copy2(source, target)
        else:
            os.link(source, target)

    shutil.rmtree(folder, ignore_errors=True)  # of a call that was killed
    return Path(shutil.copytree(checkouts, folder, symlinks=True, copy_function=copy))


def measure(options: argparse.Namespace) -> int:
    """Measure with a copy of the checkouts for each device; return 1 if a task raised an error."""
    checkouts = options.checkouts.resolve()
    trees = {device: options.trees / f"gpu{device}" for device in options.devices.split(",")}
    try:
        copies = {device: linked_tree(checkouts, tree) for device, tree in trees.items()}
        return work_on(copies, tasks_of(options), options)
    finally:
        for tree in trees.values():
            shutil.rmtree(tree, ignore_errors=True)


def work_on(
    checkouts: Mapping[str, Path], groups: Iterable[tuple[Task, ...]], options: argparse.Namespace
) -> int:
    """Let each device work on the groups of tasks; return 1 if a task raised an error.

    `checkouts` has the devices, each with the folder in which its programs are.
    """
    until, failed = time.monotonic() + options.deadline, Event()
    results = Results(options.out)
    todo: Queue[tuple[Task, ...]] = Queue()
    for group in groups:
        todo.put(group)
    parts = split_cores(sorted(os.sched_getaffinity(0)), len(checkouts))
    with ExitStack() as stack:
        places = []
        for (device, folder), cores in zip(checkouts.items(), parts, strict=True):
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="p")))
            uuid = None if device == "cpu" else live_gpu(device).uuid
            places.append(
                Place(
                    device=device,
                    uuid=uuid,
                    cores=cores,
                    checkouts=folder,
                    scratch=scratch,
                    until=until,
                    results=results,
                )
            )
        threads = [Thread(target=work, args=(place, todo, failed)) for place in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return int(failed.is_set())


def main() -> int:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", default="0", help="indices, or cpu [0]")
    parser.add_argument("--deadline", type=float, default=560.0, metavar="SECONDS")
    parser.add_argument("--parts", nargs="+", default=["profile", "alone", "mixes"])
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--mixes", type=int, nargs=2, default=(0, MIXES), metavar=("FIRST", "END"))
    parser.add_argument("--again", type=int, default=0, metavar="N", help="mixes measured twice")
    parser.add_argument("--alone-s", type=float, default=25.0, metavar="SECONDS")
    parser.add_argument("--mix-s", type=float, default=25.0, metavar="SECONDS")
    parser.add_argument("--probe", action="store_true", help="profile under MPS limits too")
    parser.add_argument("--list", type=Path, default=LIST)
    parser.add_argument("--zoo", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--trees", type=Path, default=Path(tempfile.gettempdir()) / "trees")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
