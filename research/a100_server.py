"""A published trace of a server with four A100-40GB: what sharing saves there, by prediction.

    python -m research.a100_server DIR

reads ``a100_server_trace_90.csv`` and ``a100_server_solo.csv`` in DIR, facts of CARMA (Yousefzadeh-
Asl-Miandoab et al., arXiv 2508.19073), and writes ``a100_server.json``, from which a document is
rendered. Its tasks are described in three ways: by bare numbers, duration and memory alone; by the
bundled profile of the most similar network, with the task's own duration and memory; and by this
profile, if the task is on CIFAR-100, on a host so slow that a step takes as long as the task's.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import ceil, nan
from pathlib import Path
from typing import Any

from advisor.api import Advisor
from advisor.errors import UnknownName
from advisor.files.writing import write_whole
from advisor.prediction.host import on_host
from advisor.prediction.prediction import LEVELS
from advisor.report.simulation import saving
from advisor.simulation import Policy
from advisor.simulation.results import Simulation
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Memory, Profile
from advisor.workload.spec import batch_name
from advisor.workload.store import NO_CALIBRATION
from research.files import csv_rows, rounded
from research.score_tables import markdown

GPU, GPUS = "a100-40gb", 4
FILE = Path(__file__).with_suffix(".json")
TRACE, SOLO = "a100_server_trace_90.csv", "a100_server_solo.csv"
# By the authors' best policy, measured.
THEIR_SAVINGS = {"makespan": 0.35, "energy": 0.15}

# Tasks of the solo table whose networks have the family and the data of a bundled profile.
FAMILIES = {
    ("resnet18", "CIFAR-100"): "resnet26-cifar10-bsN",
    ("resnet34", "CIFAR-100"): "resnet26-cifar10-bsN",
    ("S_mobilenetv3", "CIFAR-100"): "mobilenetv3_large_100-cifar10-bsN",
    ("efficientnet_b0", "CIFAR-100"): "tf_efficientnetv2_s-cifar10-bsN",
    ("efficientnet_b0", "ImageNet and others"): "tf_efficientnetv2_s-imagenet-bsN",
    ("resnet50", "ImageNet and others"): "resnet50-imagenet-bsN-amp",
}

# The network and data of a task, and the bundled profile of the most similar ones. N: its batch.
SIMILAR = {
    "resnet18-cifar100": "resnet26-cifar10-bsN",
    "resnet34-cifar100": "resnet26-cifar10-bsN",
    "S_mobilenetv3-cifar100": "mobilenetv3_large_100-cifar10-bs128",
    "efficientnet_b0-cifar100": "tf_efficientnetv2_s-cifar10-bs128",
    "efficientnet_b0": "tf_efficientnetv2_s-imagenet-bsN",
    "resnet50": "resnet50-imagenet-bs32-amp",
    "vgg16": "resnet152-imagenet-bsN",
    "Xception": "resnet152-imagenet-bsN",
    "inception": "resnet152-imagenet-bsN",
    "mnist_cnn": "cnn-cifar10-bs128",
    "BERT_base": "bert-base-finetune-bs16",
    "BERT_large": "bert-base-finetune-bs16",
    "xlnet_base": "bert-base-finetune-bs16",
    "xlnet_large": "bert-base-finetune-bs16",
    "gpt2_large": "gpt2-medium-pretrain-bs4",
}

WAYS: tuple[tuple[str, Policy, str], ...] = (
    ("one task a GPU", "first-come", "serial"),
    ("2 at once, time-sliced", "first-come", "naive/2"),
    ("2 at once, MPS", "first-come", "mps/2"),
    ("3 at once, MPS", "first-come", "mps/3"),
    ("4 at once, MPS", "first-come", "mps/4"),
    ("best fit, up to 4 at once, MPS", "best-fit", "mps/4"),
)
"""The queues: their words, policy and sharing."""

DESCRIPTIONS = {
    "bare": "bare numbers",
    "similar": "similar networks",
    "paced": "similar networks, slow CIFAR-100",
}

CIFAR_EXAMPLES = 50_000
# Most slowdown of a host that is tried.
MOST_SLOWDOWN = 100.0


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the trace."""

    arrival_s: float
    name: str
    gpus: int
    duration_s: float
    memory_mib: float

    @property
    def batch(self) -> int:
        parts = batch_name(self.name)
        assert parts is not None, self.name
        return parts.batch

    def as_job(self, profile: Profile) -> Job:
        """Return the task as a job of `profile`, as long as the task was alone."""
        one_pass = Job(profile, gpus=self.gpus)
        assert one_pass.alone_s is not None
        return replace(one_pass, epochs=self.duration_s / one_pass.alone_s)


def tasks(folder: Path) -> list[Task]:
    """Return the tasks of the trace; one has no duration and is left out."""
    return [
        Task(
            float(row["arrival_s"]),
            row["task"],
            int(row["gpus"]),
            float(row["duration_s"]),
            float(row["memory_mib"]),
        )
        for row in csv_rows(folder / TRACE)
        if row["duration_s"]
    ]


@cache
def bare(name: str, batch: int, memory_mib: float) -> Profile:
    """Return a task by its memory alone; its duration is the job's."""
    return MinimalProfile(
        schema=1,
        workload=name,
        gpu=GPU,
        batch_size=batch,
        step_s=None,
        memory_mib=memory_mib,
        power_w=None,
        gpu_utilization=None,
        memory_utilization=None,
        duration_s=3600.0,
    ).whole()


@cache
def similar(advisor: Advisor, name: str, batch: int, memory_mib: float) -> Profile:
    """Return the profile of the most similar network, with the task's own memory."""
    word = SIMILAR[name.rpartition("-bs")[0]].replace("bsN", f"bs{batch}")
    memory = Memory(allocated_mib=None, reserved_mib=None, device_mib=memory_mib)
    return replace(advisor.find_profile(word), memory=memory)


def cifar_steps_s(folder: Path) -> dict[str, float]:
    """Return the seconds of a step alone, validation included, of each task on CIFAR-100."""
    return {
        f"{row['model']}-cifar100-bs{row['batch_size']}": float(row["minutes"])
        * 60
        / ceil(CIFAR_EXAMPLES / int(row["batch_size"]))
        for row in csv_rows(folder / SOLO)
        if row["dataset"] == "CIFAR-100"
    }


@cache
def paced(profile: Profile, step_s: float) -> Profile:
    """Return `profile` on a host so slow that a step takes `step_s`; itself if it takes longer."""
    from scipy.optimize import brentq

    def early_s(slowdown: float) -> float:
        return step_s - on_host(profile, slowdown).step_s

    if early_s(1.0) <= 0:
        return profile
    return on_host(profile, float(brentq(early_s, 1.0, MOST_SLOWDOWN)))


def simulations(
    advisor: Advisor, every: list[Task], profile: Callable[[Task], Profile]
) -> Iterator[tuple[str, Simulation]]:
    """Simulate each of `WAYS`."""
    arrivals = [Arrival(task.as_job(profile(task)), task.arrival_s) for task in every]
    for words, policy, sharing in WAYS:
        yield words, advisor.simulate(arrivals, sharing, Fleet(GPU, GPUS, policy)).simulation


def outcome(simulation: Simulation, unshared: Simulation) -> dict[str, Any]:
    """Return the totals of a way, and what it saves over one task a GPU."""
    shared_j, unshared_j = simulation.energy_j, unshared.energy_j
    return {
        "makespan_h": asdict(simulation.makespan_s.scaled(1 / 3600)),
        "completion_h": simulation.mean_completion_s / 3600,
        "makespan_saved": asdict(saving(simulation.makespan_s, unshared.makespan_s)),
        "completion_saved": 1 - simulation.mean_completion_s / unshared.mean_completion_s,
        "energy_saved": None
        if shared_j is None or unshared_j is None
        else asdict(saving(shared_j, unshared_j)),
        "peak_gib": simulation.peak_memory_mib / 1024,
    }


def document(folder: Path) -> dict[str, Any]:
    """Return what `a100_server.json` holds: each way in both descriptions, and the solo table."""
    advisor, every = Advisor(GPU, calibration=NO_CALIBRATION), tasks(folder)
    steps_s = cifar_steps_s(folder)
    profiles: Mapping[str, Callable[[Task], Profile]] = {
        "bare": lambda task: bare(task.name, task.batch, task.memory_mib),
        "similar": lambda task: similar(advisor, task.name, task.batch, task.memory_mib),
        "paced": lambda task: paced(
            similar(advisor, task.name, task.batch, task.memory_mib), steps_s.get(task.name, 0.0)
        ),
    }
    ways = {}
    for name, profile in profiles.items():
        done = dict(simulations(advisor, every, profile))
        unshared = done[WAYS[0][0]]
        ways[name] = {words: outcome(each, unshared) for words, each in done.items()}
    return {"tasks": len(every), "ways": ways, "solo": list(solo(advisor, folder))}


def solo(advisor: Advisor, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each task alone of which there is a profile of its family, at its batch size."""
    for row in csv_rows(folder / SOLO):
        word = FAMILIES.get((row["model"], row["dataset"]))
        if word is None:
            continue
        with suppress(UnknownName):
            profile = advisor.find_profile(word.replace("bsN", f"bs{row['batch_size']}"))
            memory_mib = profile.memory.device_mib
            assert memory_mib is not None
            yield {
                "task": f"{row['model']}, {row['dataset'].split()[0]}, batch {row['batch_size']}",
                "profile": profile.name,
                "minutes": [float(row["minutes"]), (Job(profile).alone_s or nan) / 60],
                "memory_gib": [float(row["memory_gb"]) * 1000 / 1024, memory_mib / 1024],
            }


def ways_text() -> str:
    """Return the table of the ways in both descriptions, and what the authors measured."""
    stored = json.loads(FILE.read_text())
    rows = [
        [
            DESCRIPTIONS[name],
            words,
            _around(way["makespan_h"], "{:.1f}"),
            _around(way["makespan_saved"], "{:.0%}"),
            f"{way['completion_h']:.2f}",
            "-" if way["energy_saved"] is None else _around(way["energy_saved"], "{:.0%}"),
        ]
        for name, ways in stored["ways"].items()
        for words, way in ways.items()
        if name == "bare" or words != WAYS[0][0]
    ]
    (alone, *_) = stored["ways"]["bare"].values()
    rows[0] = [
        "durations alone",
        WAYS[0][0],
        f"{alone['makespan_h']['p50']:.2f}",
        "0%",
        f"{alone['completion_h']:.2f}",
        "-",
    ]
    rows.append(
        [
            "**measured by the authors**",
            "their best policy",
            "-",
            f"{THEIR_SAVINGS['makespan']:.0%}",
            "-",
            f"{THEIR_SAVINGS['energy']:.0%}",
        ]
    )
    headings = [
        "tasks described by",
        "queue",
        "makespan, h",
        "makespan saved",
        "mean completion, h",
        "energy saved",
    ]
    return markdown(headings, rows)


def solo_text() -> str:
    """Return the table of tasks alone: measured by the authors, and of our nearest profile."""
    rows = [
        [
            row["task"],
            row["profile"],
            *(f"{value:.2f}" for value in row["minutes"]),
            *(f"{value:.2f}" for value in row["memory_gib"]),
        ]
        for row in json.loads(FILE.read_text())["solo"]
    ]
    headings = [
        "task",
        "profile of its family",
        "epoch, min, measured",
        "estimated",
        "memory, GiB, measured",
        "estimated",
    ]
    return markdown(headings, rows)


def _around(value: Mapping[str, float], form: str) -> str:
    low, middle, high = (form.format(value[level]) for level in LEVELS)
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    text = json.dumps(rounded(document(Path(sys.argv[1])), ".4g"), indent=1, allow_nan=False)
    write_whole(FILE, text + "\n")
