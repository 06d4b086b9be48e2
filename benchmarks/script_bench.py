"""Scripts of users on one or two GPUs: their profiles beside the zoo's, the hook's cost, mixes run.

    PYTHONPATH=. python benchmarks/script_bench.py --devices 0,1 --deadline 350 --out OUT

Each task is skipped where OUT has its result, so the same command goes on where one was cut off.
``python -m research.script_score OUT/tidy`` says what came of it, with predictions.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, sleep, time

sys.path.insert(0, str(Path(__file__).parent))
from script_verbs import script_verbs

from advisor.measure.process.claimed_device import claimed, device_at_hand
from advisor.measure.process.cores import allowed_cores, split_cores
from advisor.measure.process.mps_session import mps_session_on
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.measure.process.tenant_handle import living
from advisor.measure.process.tenants import tenants_on
from advisor.measure.shared.strict_record import record
from advisor.sharing import Naive
from advisor.workload.spec import Workload

SCRIPTS = Path(__file__).resolve().parent / "scripts"

# Script, the workload of the zoo that it equals, and how many processes its loader has.
STYLES = {
    "plain_loop": ("resnet50-imagenet64-bs32", 0),
    "timm_style": ("vit_small_patch16_224-imagenet-bs32-amp", 0),
    "lightning_style": ("mobilenetv3_large_100-imagenet64-bs128-loader2", 2),
    "trainer": (None, 1),
}
_THROUGHPUT = r"([0-9.]+) candidates/s"

MIXES = {
    "a": ("plain_loop", "timm_style"),
    "b": ("plain_loop", "timm_style", "trainer"),
    "c": ("trainer", "evolution"),
    # As a, of the zoo.
    "z": ("resnet50-imagenet64-bs32", "vit_small_patch16_224-imagenet-bs32-amp"),
}
LIMITS = {"a": "mps=50,50", "b": "mps=30,40,30", "c": "mps=60,40", "z": "mps=50,50"}


@dataclass(frozen=True, slots=True)
class Place:
    """A device, the cores for it, and where results go."""

    device: str
    cores: tuple[int, ...]
    out: Path
    tiny: bool
    until: float

    @property
    def left_s(self) -> float:
        return self.until - monotonic()

    @property
    def key(self) -> str:
        return device_at_hand(self.device).key

    def profile(self, name: str) -> Path:
        return self.out / "profiles" / self.key / f"{name}.json"

    def command(self, style: str) -> list[str]:
        return ["python", f"{style}.py", *(["--tiny"] if self.tiny else [])]

    def say(self, line: str) -> None:
        print(f"[{self.device} {self.left_s:5.0f} s left] {line}", flush=True)


def workload_in(profile: Path) -> Workload:
    """What a profile made here or in an earlier call is of; pydantic is not everywhere."""
    workload = record(Workload, json.loads(profile.read_text())["workload"])
    script = workload.script
    return replace(workload, script=script and replace(script, folder=str(SCRIPTS)))


def run(place: Place, needed_s: float, words: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints on both streams; empty if it failed or time is short."""
    if place.left_s < needed_s:
        place.say(f"no time for: {' '.join(words[:6])}")
        return ""
    mask = place.cores
    try:
        ended = subprocess.run(
            list(words), capture_output=True, text=True, timeout=place.left_s, check=False,
            cwd=folder, preexec_fn=lambda: os.sched_setaffinity(0, mask),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        place.say(f"was cut off: {' '.join(words[:6])}")
        return ""
    said = ended.stdout + ended.stderr
    if ended.returncode:
        place.say(f"failed ({ended.returncode}): {' '.join(words[:8])}\n{said[-1500:]}")
        return ""
    return said


def profiled(place: Place, name: str, words: Sequence[str], needed_s: float = 45.0) -> None:
    """Profile by ``python -m advisor.profiling``, unless that was done."""
    if place.profile(name).exists() and (place.tiny or _traced(place.profile(name))):
        return
    began = monotonic()
    out = str(place.profile(name).parent)
    probe = ["--no-probe"] if place.tiny else []
    base = [sys.executable, "-m", "advisor.profiling", "--device", place.device, "--out", out]
    said = run(place, needed_s, [*base, *probe, *words])
    place.say(f"profiled {name} in {monotonic() - began:.0f} s: {said.splitlines()[1:2]}")


def _traced(profile: Path) -> bool:
    """Whether what can be traced was: an earlier call may have failed to."""
    found = json.loads(profile.read_text())
    script = found["workload"]["script"]
    return found["trace"] is not None or bool(script and script["throughput"])


def zoo_profiled(place: Place, style: str) -> None:
    workload = STYLES[style][0]
    if workload is not None and not place.tiny:
        profiled(place, workload, [workload])


def script_profiled(place: Place, style: str) -> None:
    own = ["--name", style, "--folder", str(SCRIPTS)]
    if style in ("plain_loop", "timm_style"):  # without a loader
        own += ["--batch", "32"]
    if style == "evolution":
        own += ["--throughput", _THROUGHPUT, "--batch", "80"]
    profiled(place, style, [*own, "--", *place.command(style)])


def alone(place: Place, style: str) -> None:
    """Run a script as its author would, and keep the pace that it prints by itself."""
    file = place.out / f"alone-{style}.json"
    if file.exists() or style == "evolution":
        return
    cores = place.cores[: 1 + STYLES[style][1]]
    words = ["taskset", "-c", ",".join(map(str, cores)), *place.command(style), "--steps", "400"]
    where = f"CUDA_VISIBLE_DEVICES={device_at_hand(place.device).uuid or ''}"
    said = run(place, 25.0, ["env", "OMP_NUM_THREADS=1", where, *words], SCRIPTS)
    paces = [float(line.split()[2]) for line in said.splitlines() if line.startswith("own ")]
    if paces:
        file.write_text(json.dumps({"style": style, "step_s": paces}))


def hook_cost(place: Place, style: str, seconds: float = 6.0) -> None:
    """Time the hook from within. Windows with and without it differ by the host's noise alone."""
    file = place.out / f"cost-{style}.json"
    if file.exists() or not place.profile(style).exists() or place.left_s < 20 + seconds:
        return
    workload, device = workload_in(place.profile(style)), device_at_hand(place.device)
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]  # for its verbs
    os.environ["PYTHONPATH"] = ":".join(filter(None, paths))
    with (
        claimed(device, "script_bench"),
        scratch_folder() as folder,
        mps_session_on(device, folder) as session,
    ):
        session.switch_to(Naive())
        setups = session.setups(Naive(), [place.cores[: workload.cores]], [workload])
        with tenants_on(setups, session.folder, script_verbs) as (tenant,):
            living(tenant.ask("load", workload=workload, warm_steps=20))
            began = time()
            answer = living(tenant.ask("timed_run", start_at=began, stop_at=began + seconds))
    ends = answer["completed_at"]
    found = {"style": style, "steps": len(ends), "in_hook_s": answer["in_hook_s"],
             "window_s": ends[-1] - began}  # fmt: skip
    file.write_text(json.dumps(found))
    each_s = found["in_hook_s"] / found["steps"]
    place.say(f"{style}: {each_s * 1e6:.0f} us in the hook")


def mixed(place: Place, mix: str, way: str) -> None:
    """Run a mix of scripts in a way, by ``python -m advisor.collocation``."""
    names = MIXES[mix]
    sharing = LIMITS[mix] if way == "limits" else way
    runs = place.out / "runs" / f"{mix}-{way}.jsonl"
    if runs.exists() or (place.tiny and way != "naive"):
        return
    deadline = min(place.until, monotonic() + 120)
    while not all(place.profile(name).exists() for name in names):
        if monotonic() > deadline:
            place.say(f"{mix} {way}: its profiles are not there")
            return
        sleep(0.5)
    workloads = [asdict(workload_in(place.profile(name))) for name in names]
    plan = {
        "id": f"scripts-{mix}-{way}",
        "sharing": sharing,
        "purpose": "validation",
        "workloads": workloads,
    }
    runs.parent.mkdir(parents=True, exist_ok=True)
    plans = place.out / "runs" / f"{mix}-{way}.plan.json"
    plans.write_text(json.dumps({"schema": 1, "gpu": place.key, "plans": [plan]}))
    words = [sys.executable, "-m", "advisor.collocation", str(plans), "--device", place.device]
    said = run(place, 25.0, [*words, "--out", str(runs), "--windows", "4"])
    place.say(f"ran {mix} {way}: {said.strip().splitlines()[-1:]}")


FIRST = """plain_loop: script zoo; evolution: script; plain_loop: cost alone; a: naive mps limits;
c: mps naive limits; lightning_style: script zoo alone"""
SECOND = """timm_style: script zoo; trainer: script; timm_style: cost; b: mps naive limits;
timm_style: alone; trainer: alone"""
TINY = "plain_loop: script; timm_style: script; plain_loop: cost alone; a: naive"


def tasks(text: str) -> Iterator[Callable[[Place], None]]:
    """What a device does, most wanted first."""
    kinds = {"script": script_profiled, "zoo": zoo_profiled, "cost": hook_cost, "alone": alone}
    for part in text.split(";"):
        what, _, words = part.strip().partition(": ")
        for word in words.split():
            task = kinds.get(word)
            yield partial(mixed, mix=what, way=word) if task is None else partial(task, style=what)


def work(
    place: Place, todo: Sequence[Callable[[Place], None]], failed: list[str], lock: Lock
) -> None:
    for task in todo:
        try:
            task(place)
        except Exception as error:  # the others are still of use
            place.say(f"error: {type(error).__name__}: {error}")
            with lock:
                failed.append(str(error))


def measure(asked: argparse.Namespace) -> int:
    until = monotonic() + asked.deadline
    devices = asked.devices.split(",")
    cores = split_cores(allowed_cores(), len(devices))
    asked.out.mkdir(parents=True, exist_ok=True)
    lists = [TINY] if asked.tiny else [FIRST, SECOND]
    lists = [asked.tasks] if asked.tasks else lists
    shares = lists if len(devices) == len(lists) else ["; ".join(lists)]
    failed: list[str] = []
    lock = Lock()
    threads = []
    for device, own, todo in zip(devices, cores, shares, strict=True):
        place = Place(device, own, asked.out.resolve(), asked.tiny, until)
        threads.append(Thread(target=work, args=(place, list(tasks(todo)), failed, lock)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tidy(asked.out)
    print(f"done; {len(failed)} errors", flush=True)
    return 0


def tidy(out: Path) -> None:
    """Name no folder of this machine in what is kept."""
    for file in [*out.rglob("*.json"), *out.rglob("*.jsonl")]:
        text = file.read_text()
        if not file.name.endswith(".plan.json") and not file.is_relative_to(out / "tidy"):
            kept = out / "tidy" / file.relative_to(out)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(text.replace(str(SCRIPTS), "/benchmarks/scripts"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="0,1")
    parser.add_argument("--deadline", type=float, default=350.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", help="instead of all, e.g. 'evolution: script; c: mps naive'")
    parser.add_argument("--tiny", action="store_true", help="to try it, e.g. with --devices cpu")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
