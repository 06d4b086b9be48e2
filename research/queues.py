"""Short jobs that ran to their ends on an H100, in queues and all at once."""

import json
from math import ceil
from statistics import mean

from advisor.report.scores import markdown
from research.files import ROOT

FILE = ROOT / "benchmarks" / "queues" / "h100.json"


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
        rows.append([
            plan["sharing"],
            f"{predicted['p50']:.0f} s ({predicted['p05']:.0f}-{predicted['p95']:.0f})",
            f"{predicted['p50'] + turns * mean(begin_s):.0f} s",
            f"{max(job['ended_s'] for job in jobs):.0f} s",
        ])  # fmt: skip
        starts_s += begin_s
    table = markdown(["sharing", "predicted steps", "with starts", "measured"], rows)
    mean_s, low_s, high_s = mean(starts_s), min(starts_s), max(starts_s)
    return (
        f"{table}\n\nStarts took about {mean_s:.0f} s in the mean ({low_s:.0f} to {high_s:.0f} s), "
        "estimated from the first count of steps and the pace of the job."
    )
