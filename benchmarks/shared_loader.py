"""Measures jobs that read the same images: with a data loader each, and with one for all.

    python -m benchmarks.shared_loader OUT WORKLOAD... [--device 0] [--jobs 4] [--cores 4,8,16]

Writes images to OUT, profiles each workload on them, and then for each number of jobs and cores
predicts, runs and compares: rows of OUT/rows.jsonl. On a GPU the jobs share it by MPS. A workload
is one of the zoo with a loader, e.g. ``resnet18-imagenet-bs64-amp-loader6``.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import psutil

from advisor import NO_CALIBRATION, Advisor
from advisor.errors import AdvisorError
from advisor.prediction.shared_loader import busy_cores
from advisor.workload.profile import Profile
from advisor.workload.store import read_profile

IMAGES, CLASSES, WIDTH, HEIGHT = 2_000, 10, 500, 375
_STARTED_S, _LINES, _WINDOW_S, _WINDOWS = 120.0, 3, 3.0, 3
_PACE = re.compile(r"step (\d+), ([\d.]+) s/step")


def make_images(folder: Path, count: int = IMAGES) -> None:
    """Write JPEG files of smooth noise, about as long as photographs of that size."""
    import numpy as np
    from PIL import Image

    if folder.is_dir():
        return
    random = np.random.default_rng(0)
    for number in range(count):
        noise = random.integers(0, 256, (HEIGHT // 4, WIDTH // 4, 3), dtype=np.uint8)
        place = folder / f"class{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(noise).resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
        image.save(place / f"{number}.jpg", quality=90)


def profiled(name: str, out: Path, device: str) -> Profile:
    """Profile a workload on the images, with all cores."""
    store = out / "profiles"
    command = [sys.executable, "-m", "advisor", "profile", name, "--data", str(out / "images")]
    subprocess.run([*command, "--out", str(store), "--device", device], check=True)
    (path,) = store.rglob(f"{name}-files.json")
    return read_profile(path)


@contextmanager
def mps(cores: list[int], device: str) -> Iterator[dict[str, str]]:
    """Variables of clients of an MPS daemon for that GPU, which runs meanwhile."""
    with TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        control, environment = "nvidia-cuda-mps-control", os.environ | variables
        environment = environment | {"CUDA_VISIBLE_DEVICES": device}
        subprocess.run(
            ["taskset", "-c", _listed(cores), control, "-d"], env=environment, check=True
        )
        try:
            yield variables | {"CUDA_VISIBLE_DEVICES": "0"}
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, check=False)


def _listed(cores: list[int]) -> str:
    return ",".join(map(str, cores))


def tree_cpu_s(processes: list[psutil.Process]) -> float:
    """CPU seconds of these processes and of all that they started, also of those that ended."""
    total_s = 0.0
    for each in processes:
        for one in (each, *each.children(recursive=True)):
            try:
                times = one.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total_s += times.user + times.system
    return total_s


def run(
    profile: Profile, jobs: int, cores: list[int], device: str, *, shared: bool
) -> dict[str, float | list[float]]:
    """Run `jobs` on `cores`; return seconds and core seconds of a step."""
    fields = {k: v for k, v in asdict(profile.workload).items() if v not in (None, False)}
    command = ["taskset", "-c", _listed(cores), sys.executable, "-m", "advisor.zoo"]
    command += ["--device", "cpu" if device == "cpu" else "cuda", json.dumps(fields)]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with ExitStack() as stack:
        variables = threads | ({} if device == "cpu" else stack.enter_context(mps(cores, device)))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        starts = [{}] * jobs
        if shared:
            loader = folder / "loader"
            loader.mkdir(mode=0o700)
            consumer = {"ADVISOR_LOADER": str(loader)}
            starts = [consumer | {"ADVISOR_LOADER_JOBS": str(jobs)}, *[consumer] * jobs]
        logs = [folder / f"{at}.log" for at in range(len(starts))]
        processes = []
        for own, log in zip(starts, logs, strict=True):
            with log.open("wb") as stream:
                environment = os.environ | variables | own
                process = subprocess.Popen(
                    command, env=environment, stdout=stream, stderr=subprocess.STDOUT
                )
            processes.append(process)
            stack.callback(process.kill)
        try:
            return _windows(processes, logs[-jobs:])
        except TimeoutError:
            ends = [log.read_text()[-500:] for log in logs]
            return {"error": " | ".join(ends)}
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()


def _windows(
    processes: list[subprocess.Popen[bytes]], logs: list[Path]
) -> dict[str, float | list[float]]:
    began = perf_counter()
    while not all(len(_PACE.findall(log.read_text())) >= _LINES for log in logs):
        if perf_counter() - began > _STARTED_S or any(p.poll() is not None for p in processes):
            raise TimeoutError
        sleep(0.2)
    roots = [psutil.Process(each.pid) for each in processes]

    def now() -> tuple[float, float, list[int]]:
        done = [int(_PACE.findall(log.read_text())[-1][0]) for log in logs]
        return perf_counter(), tree_cpu_s(roots), done

    # Jobs print once a second: where the last has just begun, all its steps are seen as they come,
    # and later ones up to a second late.
    sleep(_WINDOW_S)
    marks = [now()]
    for _ in range(_WINDOWS):
        sleep(_WINDOW_S)
        marks.append(now())
    steps = [
        [(after - before) for before, after in zip(first[2], second[2], strict=True)]
        for first, second in pairwise(marks)
    ]
    spans = [second[0] - first[0] for first, second in pairwise(marks)]
    # Lines are printed once a second: a window may miss or add the steps of one line.
    whole = [after - before for before, after in zip(marks[0][2], marks[-1][2], strict=True)]
    if not all(whole):
        raise TimeoutError
    span_s = marks[-1][0] - marks[0][0]
    return {
        "step_s": span_s / fmean(whole),
        "steps_s": [span / max(1, fmean(each)) for span, each in zip(spans, steps, strict=True)],
        "of_jobs_s": [span_s / each for each in whole],
        "core_s": (marks[-1][1] - marks[0][1]) / fmean(whole),
    }


def predicted(
    profile: Profile, jobs: int, cores: int, gpu: str, *, shared: bool
) -> dict[str, float]:
    """Return the predicted step, its ends, and core seconds of a step of all jobs."""
    advisor = Advisor(gpu, calibration=NO_CALIBRATION, host_cores=cores, share_loader=shared)
    members = advisor.jobs([profile] * jobs)
    forecast = advisor.predict(members, "mps" if jobs > 1 else "serial")
    step = forecast.prediction.jobs[0].step_s
    busy = busy_cores([each.profile for each in members], forecast.prediction)
    return {
        "step_s": step.p50,
        "p05_s": step.p05,
        "p95_s": step.p95,
        "core_s": (busy or 0.0) * step.p50,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--device", default="0", help="The number of a GPU, or cpu.")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--cores", default="4,8,16")
    parser.add_argument("--ways", default="own,shared")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--seconds", type=float, default=1e9, help="Start no cell after these.")
    options = parser.parse_args()
    began = perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    make_images(options.out / "images", options.images)
    own = sorted(os.sched_getaffinity(0))
    cells = []
    for name in options.workloads:
        path = next(iter((options.out / "profiles").rglob(f"{name}-files.json")), None)
        profile = read_profile(path) if path else profiled(name, options.out, options.device)
        cells += [
            (profile, jobs, cores, shared)
            for jobs in range(1, options.jobs + 1)
            for cores in map(int, options.cores.split(","))
            for shared in (way == "shared" for way in options.ways.split(","))
            if cores <= len(own) and (jobs > 1 or not shared or cores == len(own))
        ]
    rows = options.out / "rows.jsonl"
    done = {
        (row["workload"], row["jobs"], row["cores"], row["shared"])
        for row in map(json.loads, rows.read_text().splitlines() if rows.exists() else [])
    }
    Random(0).shuffle(cells)
    for profile, jobs, cores, shared in cells:
        if (profile.name, jobs, cores, shared) in done:
            continue
        if perf_counter() - began > options.seconds:
            break
        row = {"workload": profile.name, "jobs": jobs, "cores": cores, "shared": shared}
        if profile.gpu != "cpu":
            row["predicted"] = predicted(profile, jobs, cores, profile.gpu, shared=shared)
        try:
            row["measured"] = run(profile, jobs, own[:cores], options.device, shared=shared)
        except AdvisorError as error:
            row["measured"] = {"error": str(error)}
        with rows.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
