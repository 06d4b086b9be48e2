"""A script and the workload of the zoo that does the same, by turns of a second on one core.

    PYTHONPATH=. python benchmarks/twin_turns.py plain_loop timm_style --device 0 --out OUT

Two processes of each live side by side, and all but one are stopped; each round is on the next
core. So what a host does from one minute to the next falls on all of them alike, and two processes
of one kind tell how far two differ for no reason. Writes a file ``NAME.json`` of each: seconds a
step, by turn, of each process.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import monotonic, sleep, time

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
ALIKE = {
    "plain_loop": "resnet50-imagenet64-bs32",
    "timm_style": "vit_small_patch16_224-imagenet-bs32-amp",
}
TURN_S, START_S = 1.0, 60.0
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}


def train(name: str) -> None:
    """Train a workload of the zoo and say its pace as the scripts say theirs."""
    sys.path.insert(0, str(SCRIPTS))
    from own_pace import OwnPace

    from advisor.workload.named_workloads import workload
    from advisor.zoo.task import build

    step, pace = build(workload(name), "cuda"), OwnPace()
    while True:
        step()
        pace.step()


class Job:
    """A process that trains, and what it said of its pace."""

    def __init__(self, command: list[str], device: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                env=os.environ | ONE_THREAD | {"CUDA_VISIBLE_DEVICES": device},
                stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def signal(self, what: signal.Signals) -> None:
        os.killpg(self.process.pid, what)

    def pin(self, core: int) -> None:
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})

    def paces(self) -> list[tuple[float, float, float]]:
        """Of every line: when its steps began and ended, and seconds a step."""
        lines = (line.split() for line in self.log.read_text().splitlines())
        return [
            (float(line[1]), float(line[1]) + float(line[2]) * int(line[3]), float(line[2]))
            for line in lines
            if len(line) == 4 and line[0] == "own"
        ]

    def turn(self) -> tuple[float, float]:
        """Let it train for a while; from when to when."""
        self.signal(signal.SIGCONT)
        began = time()
        sleep(TURN_S)
        self.signal(signal.SIGSTOP)
        return began, time()

    def pace_in(self, began: float, ended: float) -> float | None:
        inside = [step for since, until, step in self.paces() if began <= since and until <= ended]
        return median(inside) if inside else None


def by_turns(jobs: Mapping[str, Job], rounds: int) -> dict[str, list[float | None]]:
    until = monotonic() + START_S
    while min(len(job.paces()) for job in jobs.values()) < 3 and monotonic() < until:
        sleep(0.5)
    for job in jobs.values():
        job.signal(signal.SIGSTOP)
    cores, turns = sorted(os.sched_getaffinity(0)), []
    for at in range(rounds):
        for job in jobs.values():
            job.pin(cores[at % len(cores)])
        turns.append({name: jobs[name].turn() for name in order(jobs, at)})
    return {name: [job.pace_in(*turn[name]) for turn in turns] for name, job in jobs.items()}


def order(jobs: Mapping[str, Job], at: int) -> list[str]:
    """Each is first, second and so on as often as the others."""
    names = list(jobs)
    return names[at % len(names) :] + names[: at % len(names)]


def compare(name: str, asked: argparse.Namespace) -> None:
    commands = {"script": [str(SCRIPTS / f"{name}.py"), *asked.arguments],
                "zoo": [__file__, ALIKE[name], "--train"]}  # fmt: skip
    jobs: dict[str, Job] = {}
    try:
        for turn in (1, 2):
            for kind, command in commands.items():
                key = f"{kind} {turn}"
                jobs[key] = Job(command, asked.device, asked.out / f"{name}-{kind}-{turn}.log")
        found = by_turns(jobs, asked.rounds)
    finally:
        for job in jobs.values():
            job.signal(signal.SIGKILL)
    (asked.out / f"{name}.json").write_text(json.dumps({"alike": ALIKE[name], "step_s": found}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="0")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--arguments", nargs="*", default=(), help="of the scripts")
    asked = parser.parse_args()
    if asked.train:
        return train(asked.names[0])
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names:
        compare(name, asked)
    return None


if __name__ == "__main__":
    main()
