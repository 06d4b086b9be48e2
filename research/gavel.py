"""Gavel's own simulator and ours on one trace: outcomes of policies with one job a GPU.

    python -m research.gavel DIR

reads a trace, throughputs of jobs alone and the outcomes of Gavel (Narayanan et al., OSDI 2020) in
DIR, and writes ``gavel.json``, from which a document is rendered.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.api import Advisor
from advisor.files.writing import write_whole
from advisor.simulation import Policy
from advisor.simulation.simulate import Fleet
from advisor.workload.job import Arrival, Job
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.store import NO_CALIBRATION
from research.files import csv_rows, rounded
from research.score_tables import markdown

GPU = "v100-32gb"
FILE = Path(__file__).with_suffix(".json")
# Gavel's name of a policy, and ours.
POLICIES: dict[str, Policy] = {
    "fifo": "first-come",
    "max_min_fairness": "max-min",
    "finish_time_fairness": "finish-time",
}
# Seconds of a round, and of a job's stop and start again.
ROUND_S, PREEMPTION_S = 360.0, 0.0
WORDS = {
    "fifo": "first come",
    "max_min_fairness": "max-min fairness",
    "finish_time_fairness": "finish-time fairness",
}


def arrivals(folder: Path, jobs: int) -> list[Arrival]:
    """Return the first `jobs` of the trace, each as long as its steps take alone."""
    steps_per_s = {
        (row["job_type"], row["scale_factor"]): float(row["steps_per_s"])
        for row in csv_rows(folder / "isolated_throughputs.csv")
        if row["gpu"] == "v100"
    }
    hour = MinimalProfile(
        schema=1,
        workload="job",
        gpu=GPU,
        batch_size=1,
        step_s=None,
        memory_mib=1000.0,
        power_w=None,
        gpu_utilization=None,
        memory_utilization=None,
        duration_s=3600.0,
    ).whole()
    chosen = []
    for row in list(csv_rows(folder / "trace.csv"))[:jobs]:
        seconds = float(row["total_steps"]) / steps_per_s[row["job_type"], row["scale_factor"]]
        one_pass = Job(hour, gpus=int(row["scale_factor"]))
        job = replace(one_pass, epochs=seconds / (one_pass.alone_s or 1.0))
        chosen.append(Arrival(job, float(row["arrival_s"])))
    return chosen


def compared(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield Gavel's outcome of each policy on so many GPUs, and ours."""
    advisor = Advisor(GPU, calibration=NO_CALIBRATION)
    for row in csv_rows(folder / "reference.csv"):
        if row["policy"] not in POLICIES:
            continue
        fleet = Fleet(
            GPU,
            int(row["gpus"]),
            POLICIES[row["policy"]],
            round_s=ROUND_S,
            preemption_s=PREEMPTION_S,
        )
        simulation = advisor.simulate(
            arrivals(folder, int(row["jobs"])), "serial", fleet
        ).simulation
        hours = np.array([each.completion_s for each in simulation.jobs]) / 3600
        yield {
            "policy": row["policy"],
            "gpus": int(row["gpus"]),
            "jobs": int(row["jobs"]),
            "mean_h": [float(row["mean_jct_h"]), float(hours.mean())],
            "p99_h": [float(row["p99_jct_h"]), float(np.percentile(hours, 99))],
            "makespan_h": [float(row["makespan_h"]), simulation.makespan_s.p50 / 3600],
        }


def gavel_text() -> str:
    """Return the table of both outcomes."""
    rows = [
        [
            WORDS[row["policy"]],
            str(row["gpus"]),
            str(row["jobs"]),
            *(f"{value:.1f}" for name in ("mean_h", "p99_h", "makespan_h") for value in row[name]),
        ]
        for row in json.loads(FILE.read_text())
    ]
    headings = ["policy", "GPUs", "jobs"]
    for words in ("mean completion", "99 % of completions", "makespan"):
        headings += [f"{words}, h, Gavel", "ours"]
    return markdown(headings, rows)


if __name__ == "__main__":
    text = json.dumps(rounded(list(compared(Path(sys.argv[1]))), ".5g"), indent=1, allow_nan=False)
    write_whole(FILE, text + "\n")
