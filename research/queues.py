"""Short jobs that ran to their ends: in queues on an H100, and sixteen on four H100s."""

import json
from math import ceil
from statistics import mean

from research.files import ROOT
from research.score_tables import markdown

FILE = ROOT / "benchmarks" / "queues" / "h100.json"
_FOUR_GPUS = ROOT / "benchmarks" / "four-gpus"


def queues_text() -> str:
    """Return predicted and measured total times of each run; `with starts` adds those of the run.

    A queue of n jobs, k at once, starts ceil(n / k) processes one after another.
    """
    rows, starts_s = [], []
    for plan in json.loads(FILE.read_text())["plans"]:
        jobs, predicted = plan["jobs"], plan["predicted_s"]
        begin_s = [job["first_step_s"] - job["started_s"] for job in jobs]
        _, queue, at_once = plan["sharing"].partition("/")
        turns = ceil(len(jobs) / int(at_once)) if queue else 1
        rows.append(
            [
                plan["sharing"],
                f"{predicted['p50']:.0f} s ({predicted['p05']:.0f}-{predicted['p95']:.0f})",
                f"{predicted['p50'] + turns * mean(begin_s):.0f} s",
                f"{max(job['ended_s'] for job in jobs):.0f} s",
            ]
        )
        starts_s += begin_s
    table = markdown(["sharing", "predicted steps", "with starts", "measured"], rows)
    mean_s, low_s, high_s = mean(starts_s), min(starts_s), max(starts_s)
    return (
        f"{table}\n\nStarts took about {mean_s:.0f} s in the mean ({low_s:.0f} to {high_s:.0f} s), "
        "estimated from the first count of steps and the pace of the job."
    )


_ARMS = {
    "plan": "the plan",
    "always-mps": "always MPS, four on each",
    "first-come": "first come, one each",
}


def four_gpus_text() -> str:
    """Return predicted and measured total times of sixteen jobs, and the errors of their ends."""
    rows, errors, inside = [], list[float](), 0
    for jobs in ("chosen", "drawn"):
        for arm in json.loads((_FOUR_GPUS / f"{jobs}.json").read_text())["arms"]:
            total, ends = arm["predicted_s"], arm["predicted_ends_s"]
            rows.append(
                [
                    jobs,
                    _ARMS[arm["arm"]],
                    f"{total['p50']:.0f} s ({total['p05']:.0f}-{total['p95']:.0f})",
                    " and ".join(f"{run['makespan_s']:.0f} s" for run in arm["runs"]),
                ]
            )
            for job in (job for run in arm["runs"] for job in run["jobs"]):
                low_s, middle_s, high_s = ends[str(job["job"])]
                errors.append(abs(middle_s / job["ended_s"] - 1))
                inside += low_s <= job["ended_s"] <= high_s
    table = markdown(["jobs", "four GPUs", "predicted", "measured"], rows)
    return (
        f"{table}\n\nThe end of a job was {100 * mean(errors):.1f} % off in the mean "
        f"and {100 * max(errors):.0f} % at worst; {inside} of {len(errors)} lay in their 90 % "
        "intervals."
    )
