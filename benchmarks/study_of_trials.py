"""A study of small trials on one GPU: one at a time, by threads of one process, and as advised.

    python benchmarks/study_of_trials.py --predict --out DIR                 # before, without a GPU
    python benchmarks/study_of_trials.py --device 0 --deadline 290 --out DIR
    python benchmarks/study_of_trials.py --compare --out DIR

The first writes ``predicted.json``: how many processes are advised for the study, how they share,
and how long each way takes. The second reads it and runs the ways that have no file in DIR yet, as
advised first, each into ``WAY.json``; a way that the deadline cuts short says so, and counts by its
rate. A trial trains the workload for a number of steps at a learning rate; the clock of a trial
starts with its first step, and the study's also with its first process. ``--wheels`` names a folder
of optuna's wheels, where optuna is not installed.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic, time
from typing import Any

from advisor.apply.study import SharedProcesses, StudySpec, gpu_shared_by, run_study
from advisor.measure.process.claimed_device import device_at_hand, host_cpu
from advisor.sharing import Mps, Naive, parse_sharing

WORKLOAD, STEPS, TRIALS, NAME = "resnet26-cifar10-bs128", 500, 24, "rates"
WAYS = ("advised", "one-at-a-time", "threads")
ASKED = "STUDY_OF_TRIALS"
ROOT = Path(__file__).resolve().parents[1]


def objective(trial: Any) -> float:
    """Train for some steps at the trial's learning rate; the loss of the last."""
    import torch

    from advisor.workload.named_workloads import workload
    from advisor.zoo.task import build

    asked = json.loads(os.environ[ASKED])
    torch.set_num_threads(1)
    began = time()
    step = build(workload(asked["workload"]), asked["kind"])
    for group in step.optimizer.param_groups:
        group["lr"] = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    ready = time()
    for _ in range(asked["steps"]):
        step()
    assert step.loss is not None
    loss = float(step.loss)  # waits for the device
    trial.set_user_attr("times", [began, ready, time()])
    step.close()
    return loss


def sampler() -> Any:
    """Draws rates alike in each way; a network that diverges is as fast as one that does not."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=1)


def predict(asked: argparse.Namespace) -> dict[str, Any]:
    """How many processes are advised for the study, and how long it takes."""
    from advisor import Advisor, Job, load_profile, processes_of

    gpu = "h200-141gb"
    job = Job(load_profile(asked.workload, gpu))
    found = Advisor(gpu).trials(job, steps=asked.steps, count=asked.trials)
    assert found.study is not None
    how = processes_of(found)
    return {
        "workload": asked.workload, "steps": asked.steps, "trials": asked.trials, "gpu": gpu,
        "processes": how.processes, "sharing": str(how.sharing), "cores_each": how.cores_each,
        "trials_s": {
            "advised": asdict(found.study.wall_s),
            "one-at-a-time": asdict(found.study.one_by_one_s),
        },
        "trial_s": {
            "advised": asdict(found.trial_s(found.row)),
            "one-at-a-time": asdict(found.trial_s(found.copies.rows[0])),
        },
    }  # fmt: skip


def ways_of(predicted: dict[str, Any], on_cpu: bool) -> dict[str, SharedProcesses]:
    """How the processes of each way share; threads are one process. A CPU is shared naively."""
    sharing = parse_sharing("naive" if on_cpu else predicted["sharing"])
    assert isinstance(sharing, Naive | Mps)
    cores = predicted["cores_each"]
    alone = SharedProcesses(processes=1, sharing=Naive(), cores_each=cores)
    advised = SharedProcesses(processes=predicted["processes"], sharing=sharing, cores_each=cores)
    return {"advised": advised, "one-at-a-time": alone, "threads": alone}


def by_threads(spec: StudySpec, asked: dict[str, Any]) -> None:
    """The study in this process, by as many threads as processes are advised."""
    study = spec.opened()
    study.sampler = sampler()
    study.optimize(objective, n_trials=asked["trials"], n_jobs=asked["processes"])


def run_way(way: str, device: str, storage: str, predicted: dict[str, Any]) -> int:
    """Run one way to its end; how many processes MPS was seen to serve."""
    how = ways_of(predicted, device == "cpu")[way]
    spec = StudySpec(storage=storage, name=NAME, sampler=f"{__file__}:sampler")
    if way != "threads":
        return run_study(
            f"{__file__}:objective", predicted["trials"], how, spec, device=device
        ).mps_clients
    with gpu_shared_by(how, device) as shared:
        os.environ.update(shared.environments[0])
        by_threads(spec, predicted)
    return 0


def timed_way(way: str, asked: argparse.Namespace, left_s: float) -> dict[str, Any]:
    """What came of `way`, in a process of its own that is interrupted after `left_s`."""
    predicted = json.loads((asked.out / "predicted.json").read_text())
    predicted["kind"] = "cpu" if asked.device == "cpu" else "cuda"
    with TemporaryDirectory() as folder:
        storage = f"{folder}/study.log"
        words = [sys.executable, __file__, "--way", way, "--device", asked.device]
        began = time()
        process = subprocess.Popen(
            [*words, "--storage", storage, "--out", str(asked.out)],
            env=os.environ | {ASKED: json.dumps(predicted)}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                said, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:  # threads do not listen
                process.kill()
                said, _ = process.communicate()
        trials = StudySpec(storage=storage, name=NAME).opened().trials
    wall_s = time() - began
    times = [each.user_attrs["times"] for each in trials if "times" in each.user_attrs]
    clients = said.split()[-1] if said.split() and process.returncode == 0 else "0"
    return summary(way, times, began, wall_s) | {
        "complete": process.returncode == 0 and len(times) == predicted["trials"],
        "mps_clients": int(clients),
    }  # fmt: skip


def summary(way: str, times: list[list[float]], began: float, wall_s: float) -> dict[str, Any]:
    """Seconds of a way; each of `times` is when a trial began, took its first step, and ended."""
    if not times:
        return {"way": way, "ended": 0, "wall_s": wall_s}
    first, last = min(each[1] for each in times), max(each[2] for each in times)
    return {
        "way": way,
        "ended": len(times),
        "wall_s": wall_s,
        "before_first_step_s": first - began,
        "trials_s": last - first,
        "trial_s": median(each[2] - each[1] for each in times),
        "build_s": median(each[1] - each[0] for each in times),
        "trials_per_hour": 3600 * len(times) / (last - first),
    }


def where(device: str) -> dict[str, Any]:
    """What it was measured with."""
    at = device_at_hand(device)
    return {
        "device": at.name, "driver": at.driver, "host_cpu": host_cpu(),
        "host_cores": len(os.sched_getaffinity(0)), "torch": version("torch"),
        "optuna": version("optuna"), "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def run(asked: argparse.Namespace) -> None:
    """Run the ways that have no file yet, until the deadline."""
    deadline = monotonic() + asked.deadline
    for way in WAYS:
        file = asked.out / f"{way}.json"
        left_s = deadline - monotonic()
        if file.exists() or left_s < 5:
            continue
        found = timed_way(way, asked, left_s) | where(asked.device)
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found), flush=True)


def compare(folder: Path) -> list[str]:
    """Each way beside its prediction; a way that was cut short counts by its rate."""
    predicted = json.loads((folder / "predicted.json").read_text())
    heads = ("way", "trials", "wall s", "all trials s", "predicted s", "one trial s", "predicted s")
    lines = [heads, ["---"] * len(heads)]
    for way in WAYS:
        if (file := folder / f"{way}.json").exists():
            found = json.loads(file.read_text())
            lines.append(_beside(found, predicted) if found["ended"] else [way, "0"])
    return [f"| {' | '.join(line)} |" for line in lines]


def _beside(found: dict[str, Any], predicted: dict[str, Any]) -> list[str]:
    cells = [found["way"], str(found["ended"]), f"{found['wall_s']:.0f}"]
    all_s = found["trials_s"] * predicted["trials"] / found["ended"]
    for name, measured_s in (("trials_s", all_s), ("trial_s", found["trial_s"])):
        span = predicted[name].get(found["way"])
        said = "{p50:.1f} ({p05:.1f}-{p95:.1f})".format(**span) if span else "-"
        cells += [f"{measured_s:.1f}", said]
    return cells


def with_wheels(folder: Path) -> None:
    """Start again with the wheels in `folder` installed beside, and found."""
    into = mkdtemp(prefix="wheels-")
    wheels = sorted(map(str, folder.glob("*.whl")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", into, *wheels], check=True)
    paths = [into, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    words = [word for word in sys.argv if word not in ("--wheels", str(folder))]
    os.execv(sys.executable, [sys.executable, *words])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", default="0", help="GPU by index or UUID, or cpu [0]")
    parser.add_argument("--deadline", type=float, default=290.0, metavar="S")
    parser.add_argument("--workload", default=WORKLOAD, help=f"[{WORKLOAD}]")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of a trial [{STEPS}]")
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"[{TRIALS}]")
    parser.add_argument("--wheels", type=Path, metavar="DIR")
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--storage", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.wheels:
        with_wheels(asked.wheels)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.way:
        print(run_way(asked.way, asked.device, asked.storage, json.loads(os.environ[ASKED])))
    elif asked.predict:
        (asked.out / "predicted.json").write_text(json.dumps(predict(asked), indent=1) + "\n")
    elif asked.compare:
        print("\n".join(compare(asked.out)))
    else:
        run(asked)


if __name__ == "__main__":
    main()
