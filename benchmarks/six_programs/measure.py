"""Measures six programs: alone with nvidia-smi and counters, their profiles, then mixes of them.

    python -m benchmarks.six_programs.measure profile --out OUT/results.jsonl --devices 0,1
    python -m benchmarks.six_programs.predict OUT/results.jsonl --out OUT/predictions.json
    python -m benchmarks.six_programs.measure run --out OUT/results.jsonl --devices 0,1

Each GPU works on its own. A call measures what the file of results does not contain yet.
`--dry` trains tiny networks on a CPU, and a bundled profile and made-up numbers stand in.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Self

from advisor.files.writing import record_line
from advisor.hardware.machine import Counters
from advisor.hardware.nvml import ActivitySampler
from advisor.workload.store import load_profile
from benchmarks.programs.measure import MODES, Place, Task, work_on
from benchmarks.programs.program_list import SEED, Program
from benchmarks.six_programs.program_list import MIXES, six_programs

_QUERY = "utilization.gpu,utilization.memory,power.draw,memory.used"
_PERIOD_S = 1.0
_ROWS_BEFORE = 2  # of the GPU without the program
_MADE_UP_ROW = "55, 20, 250.0, 9000"
_MADE_UP = Counters(
    source="gpm", gract=0.6, sm_active=0.4, sm_occupancy=0.2, tensor_active=0.1, dram_active=0.2
)
_STANDS_IN = ("resnet26-cifar10-bs128", "h100-sxm-80gb")


class Watch:
    """Rows of nvidia-smi and counters of a GPU, one a second each, while it is entered.

    Attributes:
        smi: Seconds since the entry, GPU and memory utilisation in %, watts and MiB in use.
        counters: Seconds since the entry, and the counters of the second before.
    """

    def __init__(self, uuid: str | None) -> None:
        self.smi, self.counters = list[tuple[float, ...]](), list[tuple[float, dict[str, Any]]]()
        self._uuid, self._over = uuid, Event()
        self._threads = [Thread(target=each) for each in (self._read_smi, self._read_counters)]

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        while len(self.smi) < _ROWS_BEFORE and self._threads[0].is_alive():
            time.sleep(_PERIOD_S / 10)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def now_s(self) -> float:
        """Seconds since the entry."""
        return time.monotonic() - self._began

    def _read_smi(self) -> None:
        words = ["nvidia-smi", f"--id={self._uuid}", f"--query-gpu={_QUERY}"]
        words += ["--format=csv,noheader,nounits"]
        while not self._over.wait(_PERIOD_S):
            line = _MADE_UP_ROW
            if self._uuid is not None:
                line = subprocess.check_output(words, text=True, timeout=20)
            self.smi.append((self.now_s, *map(float, line.split(","))))

    def _read_counters(self) -> None:
        sampler = None if self._uuid is None else ActivitySampler(self._uuid)
        while not self._over.is_set():
            if sampler is not None:
                sampler.begin()
            self._over.wait(_PERIOD_S)
            counters = _MADE_UP if sampler is None else sampler.end().counters
            if counters is not None:
                self.counters.append((self.now_s, asdict(counters)))


def alone(place: Place, program: Program, window_s: float) -> dict[str, Any]:
    """Run a program alone, and keep the rows of nvidia-smi and the counters in its window."""
    with Watch(place.uuid) as watch:
        began_s = watch.now_s
        ran = place.together([program], "naive", window_s)
    first, last = (began_s + at for at in ran["window"])
    return {
        **ran,
        "cores": len(place.cores),
        "before_mib": median(row[4] for row in watch.smi[:_ROWS_BEFORE]) if place.uuid else 0,
        "smi": [row for row in watch.smi if first + _PERIOD_S <= row[0] <= last],
        "counters": [row for at, row in watch.counters if first + _PERIOD_S <= at <= last],
    }


def profiled(place: Place, program: Program) -> dict[str, Any]:
    """Profile a program by the command line; without a GPU, a bundled profile stands in."""
    if place.uuid is not None:
        return place.profile(program, probe=False)
    stand_in = load_profile(*_STANDS_IN)
    named = replace(stand_in, workload=replace(stand_in.workload, name=program.name))
    return {
        "kind": "programs",
        "seconds": 0.0,
        "exit": 0,
        "profile": json.loads(record_line(named)),
    }


def tasks_of(options: argparse.Namespace) -> list[tuple[Task, ...]]:
    """Return the tasks of a stage: of each program; or each mix in each mode, shuffled."""
    programs = six_programs(tiny=options.dry)
    together = partial(Place.together, window_s=options.mix_s)
    if options.stage == "profile":
        watched = partial(alone, window_s=options.alone_s)
        return [
            (
                Task(f"alone/{name}", options.alone_s + 20, partial(watched, program=each)),
                Task(f"profile/{name}", 45, partial(profiled, program=each)),
                Task(
                    f"alone/{name}/again",
                    options.mix_s + 15,
                    partial(together, programs=[each], mode="naive"),
                ),
            )
            for name, each in programs.items()
        ]
    runs = [
        Task(
            f"mix/{number:02d}/{mode}",
            options.mix_s + 18,
            partial(together, programs=[programs[name] for name in names], mode=mode),
        )
        for number, names in enumerate(MIXES)
        for mode in MODES
    ]
    random.Random(SEED).shuffle(runs)
    again = [replace(task, id=f"{task.id}/again") for task in runs[: options.again]]
    return [(task,) for task in (*runs, *again)]


def main() -> int:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=["profile", "run"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", default="0", help="indices [0]")
    parser.add_argument("--deadline", type=float, default=540.0, metavar="SECONDS")
    parser.add_argument("--alone-s", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--mix-s", type=float, default=12.0, metavar="SECONDS")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="mixes measured twice")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    options.out = options.out.resolve()
    devices = ["cpu"] if options.dry else options.devices.split(",")
    return work_on(dict.fromkeys(devices, Path.cwd()), tasks_of(options), options)


if __name__ == "__main__":
    sys.exit(main())
