"""The way of somebody with scripts of their own, by the commands alone, on one or two GPUs.

    python benchmarks/whole_way.py --devices 0,1 --deadline 550 --out OUT

Each script is profiled by `advisor profile`; each mix of them, drawn by a seed, is then put to
`advisor recommend`, and planned by `advisor export` and run by `advisor run` in every way, in
shuffled order. Results that OUT contains are not measured again. `research/scripts.py` reads
``OUT/profiles`` and ``OUT/runs.jsonl``; `--waiting` uses scripts that read their loss each step.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from time import monotonic

SCRIPTS = Path(__file__).resolve().parent / "scripts"
KEPT = "/benchmarks/scripts"
SEED = 1125
RUN_S = 36.0

# What is profiled: the script's arguments, and options of `profile`.
DRAWN = {
    "plain_loop": (["plain_loop.py"], ["--batch-size", "32"]),
    "plain_loop_256": (["plain_loop.py", "--batch", "256"], ["--batch-size", "256"]),
    "timm_style": (["timm_style.py"], ["--batch-size", "32"]),
    "timm_style_128": (["timm_style.py", "-b", "128"], ["--batch-size", "128"]),
    "lightning_style": (["lightning_style.py"], []),
    "lightning_module": (["lightning_module.py"], []),
    "trainer": (["trainer.py"], []),
    "evolution": (
        ["evolution.py"],
        ["--throughput", r"([0-9.]+) candidates/s", "--batch-size", "80"],
    ),
}
WAITING = {
    "plain_loop_read": (["plain_loop.py", "--read-loss"], ["--batch-size", "32"]),
    "plain_loop_256_read": (
        ["plain_loop.py", "--batch", "256", "--read-loss"],
        ["--batch-size", "256"],
    ),
    "timm_style_read": (["timm_style.py", "--log-interval", "1"], ["--batch-size", "32"]),
    "timm_style_128_read": (
        ["timm_style.py", "-b", "128", "--log-interval", "1"],
        ["--batch-size", "128"],
    ),
    "trainer": DRAWN["trainer"],
}
NAMES = DRAWN | WAITING
LIMITS = {2: "mps=50,50", 3: "mps=30,30,40"}


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU, the cores for it, and where results go."""

    device: str
    cores: str
    out: Path
    until: float

    def call(self, verb: Sequence[str], needed_s: float) -> str | None:
        """What a command of the advisor printed; None where it failed or time is short."""
        left_s = self.until - monotonic()
        if left_s < needed_s:
            return None
        own = {
            f"XDG_{kind}_HOME": str(self.out / f"xdg-{self.device}" / kind.lower())
            for kind in ("DATA", "STATE", "CONFIG")
        }
        words = ["taskset", "-c", self.cores, sys.executable, "-m", "advisor", *verb]
        began = monotonic()
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=left_s,
                check=False,
                env=os.environ | own,
            )
        except subprocess.TimeoutExpired:
            self.say(f"was cut off: {' '.join(verb[:5])}")
            return None
        end = (done.stdout + done.stderr).strip()[-600 if done.returncode else -90 :]
        self.say(
            f"{monotonic() - began:3.0f} s, exit {done.returncode}: {' '.join(verb[:6])}: {end}"
        )
        return None if done.returncode else done.stdout

    def say(self, line: str) -> None:
        print(f"[{self.device} {self.until - monotonic():4.0f} s left] {line}", flush=True)


def mixes(prefix: str, names: Collection[str], count: int) -> dict[str, tuple[str, ...]]:
    """Of two and three scripts, drawn."""
    drawn = random.Random(SEED)  # a draw, no secret
    return {
        f"{prefix}{number}": tuple(drawn.sample(sorted(names), 2 + number % 2))
        for number in range(1, count + 1)
    }


MIXES = mixes("m", DRAWN, 7) | mixes("w", WAITING, 5)


def profile(name: str, place: Place, folder: Path) -> None:
    """Profile a script, unless that was done."""
    if (folder / f"{name}.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    words = ["profile", "--device", place.device, "--out", str(folder)]
    command, own = NAMES[name]
    words += ["--name", name, "--folder", str(SCRIPTS), *own, "--", "python", *command]
    place.call(words, needed_s=30)


def _paths(mix: str, profiles: Path) -> list[str]:
    return [str(profiles / f"{name}.json") for name in MIXES[mix]]


def recommended(mix: str, place: Place, profiles: Path) -> None:
    out = place.out / f"recommended-{mix}.json"
    if not out.exists():
        answer = place.call(["recommend", *_paths(mix, profiles), "--json"], needed_s=15)
        if answer:
            out.write_text(answer)


def run(mix: str, way: str, place: Place, profiles: Path) -> None:
    """Plan the mix in a way, with the host as it is now, and run it."""
    plan, runs = (place.out / f"{kind}-{mix}-{way}.json" for kind in ("plan", "run"))
    sharing = LIMITS[len(MIXES[mix])] if way == "limits" else way
    if runs.exists():
        return
    words = ["export", *_paths(mix, profiles), "--sharing", sharing, "--format", "json"]
    if place.call([*words, "--out", str(plan)], needed_s=RUN_S + 25) is None:
        return
    words = ["run", str(plan), "--device", place.device, "--apply", "--deadline", str(RUN_S)]
    words += ["--grace", "4", "--profiles", str(profiles)]
    before = {file: file.read_text() for file in _recorded(place)}
    place.call(words, needed_s=RUN_S + 15)
    new = [file.read_text().removeprefix(before.get(file, "")) for file in _recorded(place)]
    if text := "".join(new).strip():
        runs.write_text(text + "\n")


def _recorded(place: Place) -> list[Path]:
    return sorted((place.out / f"xdg-{place.device}" / "data").rglob("*.jsonl"))


def tasks(options: argparse.Namespace) -> list[list[Callable[[Place], None]]]:
    """In groups: those of one are done before the next begins."""
    drawn = random.Random(SEED + options.turn)
    profiles = options.out / "profiles"
    names, prefix = (WAITING, "w") if options.waiting else (DRAWN, "m")
    chosen = [mix for mix in MIXES if mix.startswith(prefix)]
    first = [partial(profile, name, folder=profiles) for name in names]
    advice = [partial(recommended, mix, profiles=profiles) for mix in chosen]
    ways = [(mix, way) for mix in chosen for way in options.ways.split(",")]
    drawn.shuffle(ways)
    return [first, advice, [partial(run, mix, way, profiles=profiles) for mix, way in ways]]


def work(place: Place, todo: Queue[Callable[[Place], None]], failed: Event) -> None:
    while True:
        try:
            task = todo.get_nowait()
        except Empty:
            return
        try:
            task(place)
        except Exception as error:  # the others are still of use
            place.say(f"{type(error).__name__}: {error}")
            failed.set()


def measure(options: argparse.Namespace) -> int:
    devices = options.devices.split(",")
    usable = sorted(os.sched_getaffinity(0))
    share = len(usable) // len(devices)
    until, failed = monotonic() + options.deadline, Event()
    places = [
        Place(device, ",".join(map(str, usable[at * share : (at + 1) * share])), options.out, until)
        for at, device in enumerate(devices)
    ]
    for group in tasks(options):
        todo: Queue[Callable[[Place], None]] = Queue()
        for task in group:
            todo.put(task)
        threads = [Thread(target=work, args=(place, todo, failed)) for place in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    texts = [file.read_text() for file in sorted(options.out.glob("run-*.json"))]
    (options.out / "runs.jsonl").write_text("".join(texts))
    for file in [*options.out.rglob("*.json"), *options.out.rglob("*.jsonl")]:
        text = file.read_text()
        if str(SCRIPTS) in text:  # name no folder of this machine in what is kept
            file.write_text(text.replace(str(SCRIPTS), KEPT))
    return int(failed.is_set())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="0")
    parser.add_argument("--deadline", type=float, default=550.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--waiting", action="store_true")
    parser.add_argument("--ways", default="naive,mps,limits")
    parser.add_argument("--turn", type=int, default=0, help="another order")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    return measure(options)


if __name__ == "__main__":
    sys.exit(main())
