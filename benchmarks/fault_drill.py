"""Runs two jobs together and lets one thing go wrong each time; a table says what was kept of it.

    python benchmarks/fault_drill.py --device 0 --out DIR [--deadline S] [FAULT...]
    python benchmarks/fault_drill.py --table --out DIR

After each fault the fates that are reported are held against what the jobs themselves wrote last,
and processes, MPS daemons, locks, folders of pipes and damaged files are looked for. Faults that
DIR has are not tried again. Needs the standard library and numpy, on a GPU torch too.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from advisor.errors import AdvisorError
from advisor.hardware.mps import CONTROL, mps_processes
from advisor.measure.execution.execution_plan import read_execution_plan
from advisor.measure.execution.mps_daemons import pipes_folder
from advisor.measure.execution.run_folder import RunFolder
from advisor.measure.execution.run_processes import MARK
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.progress_file import progress_in, record_in
from advisor.measure.process.scratch_folders import temporary_base
from advisor.workload.plan_document import DocumentedJob, DocumentedPlan, PlanDocument
from advisor.workload.spec import Script, Workload

GRACE_S, WAIT_S = 2.0, 60.0
JOB = Path(__file__).with_name("fault_drill_job.py")


@dataclass(frozen=True)
class Outcome:
    """What came of one fault; `kept` says whether it is what was promised."""

    fault: str
    promised: str
    happened: str
    kept: bool
    seconds: float


class Drill:
    """A folder of its own for each fault, and the command that is drilled."""

    def __init__(self, folder: Path, device: str, sharing: str, program: str) -> None:
        self.folder, self.device, self.sharing = folder, device, sharing
        self.home = folder / "state"
        self.program = [sys.executable, "-m", program]
        self.environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1"}
        self.begun: list[subprocess.Popen[str]] = []
        self.on_gpu = device != "cpu"

    def plan(self, *behaviours: str) -> Path:
        workloads, jobs = {}, []
        for number, words in enumerate(behaviours, start=1):
            name = f"job{number}"
            command = (sys.executable, str(JOB), "cuda" if self.on_gpu else "cpu", *words.split())
            given = {"DRILL_TRUTH": str(self.folder / f"truth-{number}")}
            workloads[name] = Workload(
                name=name, source="script", model=name, family=name, batch=1,
                script=Script(command=command, folder=str(self.folder), environment=given),
            )  # fmt: skip
            jobs.append(DocumentedJob(
                job=name, examples_per_epoch=100, epochs=1.0, validation_s=0.0, checkpoint_s=0.0,
                user=None, data_parallel=False, isolated=False, cores=None,
                mps_limit_percent=None, memory_cap_mib=None,
            ))  # fmt: skip
        try:
            gpu = device_at_hand(self.device).key
        except AdvisorError:
            gpu = "h200-141gb"  # as the stand-in calls itself
        plan = DocumentedPlan(
            rank=1, sharing=self.sharing, power_cap_w=None, note=None, jobs=tuple(jobs)
        )
        document = PlanDocument(
            schema=1, gpu=gpu, objective=None, workloads=workloads, plans=(plan,)
        )
        path = self.folder / "plan.json"
        path.write_text(json.dumps(asdict(document)))
        return path

    def start(self, *words: object, log: str = "said") -> "subprocess.Popen[str]":
        with (self.folder / log).open("a") as said:
            process = subprocess.Popen(
                [*self.program, *map(str, words)], stdout=said, stderr=said, text=True,
                env=self.environment | {"XDG_STATE_HOME": str(self.home)},
            )  # fmt: skip
        self.begun.append(process)
        return process

    def begin(self, *behaviours: str, more: tuple[object, ...] = (), log: str = "said"
              ) -> "subprocess.Popen[str]":  # fmt: skip
        return self.start(
            "run", self.plan(*behaviours), "--device", self.device, "--apply", "--grace", GRACE_S,
            *more, log=log,
        )  # fmt: skip

    def does(self, *words: object) -> int:
        return self.start(*words).wait(WAIT_S)

    def said(self, log: str = "said") -> str:
        return (self.folder / log).read_text()

    def runs(self) -> list[RunFolder]:
        return [RunFolder(path) for path in sorted((self.home / "advisor/runs").glob("[!.]*"))]

    def run(self) -> RunFolder:
        return self.runs()[-1]

    def stepping(self, *numbers: int) -> None:
        """Wait until these jobs count steps."""

        def all_step() -> bool:
            found = [progress_in(self.run().progress(n)) if self.runs() else None for n in numbers]
            return all(each is not None and each.steps > 2 for each in found)

        wait(all_step, "the jobs to step: " + self.said()[-300:])

    def pid(self, number: int) -> int:
        return int(record_in(self.run().end(number))["pid"])

    def fates(self) -> list[str | None]:
        return [job.fate for job in self.run().state().jobs]

    def true(self) -> bool:
        """Whether each job that is said to be done wrote that it was, and no other did."""
        jobs = self.run().state().jobs
        return all((job.fate == "done") == (self.folder / f"truth-{job.number}").exists()
                   for job in jobs)  # fmt: skip

    def in_words(self) -> str:
        jobs = self.run().state().jobs
        return "; ".join(f"{job.number} {job.fate}" + (f" ({job.detail})" if job.detail else "")
                         for job in jobs)  # fmt: skip

    def left(self) -> list[str]:
        """What is still there of any run of this drill."""
        ids = {folder.path.name for folder in self.runs()}
        found = []
        for path in Path("/proc").iterdir():
            with suppress(OSError):
                variables = path.joinpath("environ").read_bytes().split(b"\0")
                if any(f"{MARK}={each}".encode() in variables for each in ids):
                    found.append(f"process {path.name}")
        ours = tuple(f"advisor-mps-{each}" for each in ids)
        found += [
            f"MPS process {each.pid}"
            for each in mps_processes()
            if any(one in (each.pipe_directory or "") for one in ours)
        ]
        found += [str(pipes_folder(each)) for each in ids if pipes_folder(each).exists()]
        for path in temporary_base().glob("advisor-*.lock"):
            with suppress(OSError):
                found += [str(path)] if any(each in path.read_text() for each in ids) else []
        return found

    def servers(self) -> list[int]:
        """Pids of the MPS servers of its last run."""
        pipes = self.run().state().pipes
        return [
            each.pid
            for each in mps_processes()
            if each.role == "server" and (each.pipe_directory or "").startswith(pipes)
        ]

    def damaged(self) -> list[str]:
        found = []
        for folder in self.runs():
            try:
                folder.state()
                read_execution_plan(folder.plan)
            except AdvisorError as error:
                found.append(str(error))
        return found

    def end(self) -> None:
        """Whatever a drill that failed left."""
        for process in self.begun:
            if process.poll() is None:
                process.kill()
            process.wait()
        with suppress(Exception):
            self.does("restore")


def wait(true: Callable[[], object], what: str, seconds: float = WAIT_S) -> None:
    until = monotonic() + seconds
    while not true():
        if monotonic() > until:
            raise AssertionError(f"waited in vain for {what}")
        sleep(0.05)


Faulty = Callable[[Drill], tuple[str, bool]]
FAULTS: dict[str, tuple[str, Faulty]] = {}


def fault(name: str, promised: str) -> Callable[[Faulty], Faulty]:
    def of(faulty: Faulty) -> Faulty:
        FAULTS[name] = (promised, faulty)
        return faulty

    return of


@fault("tenant killed", "it is said to have died by SIGKILL; the other goes on to its end")
def tenant_killed(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("steps 100000", "steps 150")
    drill.stepping(1, 2)
    os.kill(drill.pid(1), signal.SIGKILL)
    code = watcher.wait(WAIT_S)
    kept = code == 1 and drill.fates() == ["died", "done"] and "SIGKILL" in drill.in_words()
    return f"{drill.in_words()}; exit {code}", kept


@fault("out of memory", "it is said to be out of memory; the other goes on to its end")
def out_of_memory(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("oom", "steps 150")
    code = watcher.wait(WAIT_S)
    return f"{drill.in_words()}; exit {code}", drill.fates() == ["out-of-memory", "done"]


@fault("hanging", "with --patience it is ended for that, and said so; the other goes on")
def hanging(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("hang", "steps 300", more=("--patience", 3))
    code = watcher.wait(WAIT_S)
    kept = drill.fates() == ["stopped", "done"] and "no step for" in drill.in_words()
    return f"{drill.in_words()}; exit {code}", kept


@fault("forking", "processes that it left in sessions of their own end with it")
def forking(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("fork", "steps 150")
    code = watcher.wait(WAIT_S)
    left = record_in(drill.run().end(1)).get("left")
    kept = drill.fates() == ["done", "done"] and isinstance(left, int) and left > 0
    return f"{drill.in_words()}; {left} left behind were ended", kept and code == 0


@fault("ignoring SIGTERM", "it is killed after the grace; the other goes on to its end")
def deaf(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("deaf", "steps 400")
    drill.stepping(1, 2)
    drill.does("stop", "--job", 1)
    code = watcher.wait(WAIT_S)
    kept = drill.fates() == ["stopped", "done"] and "by force" in drill.in_words()
    return f"{drill.in_words()}; exit {code}", kept


@fault("MPS server killed", "the ends of its clients are said, and that it ended; a next run works")
def server_killed(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("steps 100000", "steps 100000", more=("--deadline", 40))
    drill.stepping(1, 2)
    servers = drill.servers()
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    code = watcher.wait(WAIT_S)
    words, told = drill.in_words(), "ended, and with a server end its clients" in drill.said()
    kept = bool(servers) and code == 1 and told and drill.fates() == ["died", "died"]
    (drill.folder / "truth-1").unlink(missing_ok=True)
    again = drill.begin("steps 50", "steps 50", log="again").wait(WAIT_S)
    return f"{words}; the next run: {drill.in_words()}", kept and again == 0


@fault("terminate_client first", "the one that MPS let go of has died; the other goes on")
def client_terminated(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("steps 100000", "steps 400", more=("--deadline", 40))
    drill.stepping(1, 2)
    pipes = drill.run().state().pipes + "/1/mps"
    own = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}

    def ask(request: str) -> str:
        return subprocess.run([CONTROL], input=request + "\n", env=own, capture_output=True,
                              text=True, check=False, timeout=20).stdout  # fmt: skip

    server = ask("get_server_list").split()[0]
    said = ask(f"terminate_client {server} {drill.pid(1)}").strip()
    sleep(2.0)
    with suppress(ProcessLookupError):
        os.kill(drill.pid(1), signal.SIGKILL)
    code = watcher.wait(WAIT_S)
    kept = drill.fates() == ["died", "done"]
    return f"{drill.in_words()}; exit {code}" + (f"; MPS said {said[:80]!r}" if said else ""), kept


@fault("advisor killed", "at any moment: restore ends all that it started")
def watcher_killed(drill: Drill) -> tuple[str, bool]:
    moments = (0.3, 0.6, 0.9, 1.2, 2.0, 4.0) if drill.on_gpu else (0.25, 0.35, 0.45, 0.6, 0.8, 1.5)
    wrong = []
    for number, seconds in enumerate(moments):
        watcher = drill.begin("steps 100000", "steps 100000", log=f"moment-{number}")
        sleep(seconds)
        watcher.kill()
        watcher.wait()
        if number % 2:  # restore itself is killed, too
            restore = drill.start("restore")
            sleep(0.3)
            restore.kill()
            restore.wait()
        if (code := drill.does("restore")) != 0:
            wrong.append(f"after {seconds} s: restore exits {code}")
        wrong += [f"after {seconds} s: {each}" for each in drill.left() + drill.damaged()]
    return "; ".join(wrong) or f"killed at {len(moments)} moments, nothing was left", not wrong


@fault("advisor killed, then watched again", "jobs go on; the run is watched to its end")
def watched_again(drill: Drill) -> tuple[str, bool]:
    watcher = drill.begin("steps 250", "steps 250")
    drill.stepping(1, 2)
    watcher.kill()
    watcher.wait()
    code = drill.does("run", "--resume", "--grace", GRACE_S)
    return f"{drill.in_words()}; exit {code}", drill.fates() == ["done", "done"] and code == 0


@fault("two advisors on one GPU", "the second is refused, also while only the first's jobs live")
def two_advisors(drill: Drill) -> tuple[str, bool]:
    first = drill.begin("steps 100000", "steps 100000")
    drill.stepping(1, 2)
    second = drill.begin("steps 50", "steps 50", log="second").wait(WAIT_S)
    first.kill()
    first.wait()
    third = drill.begin("steps 50", "steps 50", log="second").wait(WAIT_S)
    drill.does("restore")
    fourth = drill.begin("steps 50", "steps 50", log="second").wait(WAIT_S)
    said = f"exits {second}, {third}; after restore {fourth}"
    return said, (second, third, fourth) == (4, 4, 0)


@contextmanager
def small_disk(drill: Drill) -> Iterator[Path]:
    """A disk of a megabyte as the state's home."""
    drill.home.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(drill.home)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(done.stderr.strip())
    try:
        yield drill.home
    finally:
        subprocess.run(["umount", "-l", str(drill.home)], check=False)


def fill(folder: Path) -> Path:
    path = folder / "filled"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return path


@fault("disk full", "before: nothing starts. Meanwhile: jobs go on to their end, files stay whole")
def disk_full(drill: Drill) -> tuple[str, bool]:
    with small_disk(drill) as disk:
        filled = fill(disk)
        before = drill.begin("steps 50", "steps 50", log="before").wait(WAIT_S)
        nothing = not [each for each in drill.left() if each.startswith("process")]
        filled.unlink()
        watcher = drill.begin("steps 200 loud", "steps 200 loud")
        drill.stepping(1, 2)
        fill(disk)
        code = watcher.wait(WAIT_S)
        done = [(drill.folder / f"truth-{number}").exists() for number in (1, 2)]
        damaged = drill.damaged()
        (disk / "filled").unlink()
        restored = drill.does("restore")
        kept = before == 1 and nothing and all(done) and not damaged and restored == 0
        said = f"before: exit {before}; meanwhile: jobs done {done}, exit {code}; {damaged or ''}"
        return said + f"{drill.left() or ''}", kept and not drill.left()


@fault("read-only folder", "it is said, and nothing starts")
def read_only(drill: Drill) -> tuple[str, bool]:
    with small_disk(drill) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        code = drill.begin("steps 50", "steps 50").wait(WAIT_S)
        said = drill.said().strip().splitlines()[-1]
        return f"exit {code}: {said[:160]}", code == 1 and "Read-only" in said


@fault("clock stepping", "a day back or forth at each look changes nothing")
def clock_stepping(drill: Drill) -> tuple[str, bool]:
    hook = drill.folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import time, random\nreal = time.time\n"
        "time.time = lambda: real() + random.choice([-86400.0, 0.0, 86400.0])\n"
    )
    paths = [str(hook), *filter(None, [drill.environment.get("PYTHONPATH")])]
    drill.environment["PYTHONPATH"] = os.pathsep.join(paths)
    code = drill.begin("steps 200", "steps 200").wait(WAIT_S)
    return f"{drill.in_words()}; exit {code}", code == 0 and drill.fates() == ["done", "done"]


def tried(name: str, device: str, sharing: str, program: str) -> Outcome:
    """The fault of that name, with what it left."""
    promised, faulty = FAULTS[name]
    began = monotonic()
    with TemporaryDirectory(prefix="drill-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        drill = Drill(Path(folder), device, sharing, program)
        try:
            happened, kept = faulty(drill)
            wait(lambda: not drill.left(), "nothing to be left", 20) if kept else None
            true = not drill.runs() or name == "advisor killed" or drill.true()
            wrong = drill.left() + drill.damaged() + ([] if true else ["a fate is not true"])
            happened = "; ".join([happened, *wrong])
            kept = kept and not wrong
        except PermissionError as error:
            happened, kept = f"not tried: {error}", True
        except (AssertionError, subprocess.TimeoutExpired, OSError, LookupError, StopIteration,
                AdvisorError) as error:  # fmt: skip
            happened, kept = f"{type(error).__name__}: {error}"[:400], False
        finally:
            drill.end()
    return Outcome(name, promised, happened, kept, round(monotonic() - began, 1))


def table(found: list[Outcome]) -> str:
    rows = [
        f"| {each.fault} | {each.promised} | {each.happened} | {'yes' if each.kept else '**no**'} |"
        for each in found
    ]
    return "\n".join(["| fault | promised | what happened | kept |", "|---|---|---|---|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("faults", nargs="*", help="names; default: all")
    parser.add_argument("--device", default="0", help="GPU index, or cpu")
    parser.add_argument("--sharing", help="mps on a GPU, naive on a CPU")
    parser.add_argument("--program", default="advisor.execution", help="what is drilled")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deadline", type=float, default=3600.0, help="seconds")
    parser.add_argument("--table", action="store_true", help="only print what DIR has")
    asked = parser.parse_args()
    file = asked.out / "faults.jsonl"
    asked.out.mkdir(parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    found = [Outcome(**json.loads(line)) for line in lines]
    began = monotonic()
    sharing = asked.sharing or ("naive" if asked.device == "cpu" else "mps")
    names = asked.faults or [name for name in FAULTS if sharing == "mps" or name not in MPS_ALONE]
    for name in [] if asked.table else names:
        if name in {each.fault for each in found} or monotonic() - began > asked.deadline - 40:
            continue
        found.append(tried(name, asked.device, sharing, asked.program))
        print(found[-1], flush=True)
        with file.open("a") as out:
            out.write(json.dumps(asdict(found[-1])) + "\n")
    print(table(found))
    return 0 if all(each.kept for each in found) else 1


MPS_ALONE = ("MPS server killed", "terminate_client first", "two advisors on one GPU")
"""A CPU has no MPS, and no lock."""

if __name__ == "__main__":
    sys.exit(main())
