"""Writes the runs that measure again the best sharing of each job set of a panel.

    python benchmarks/panel_winners.py RUNS --profiles profiles/h200-141gb --out winners.toml

RUNS is the folder into which `advisor campaign` measured ``benchmarks/panels/plan.toml``; another
campaign into the same folder measures ``winners.toml``. The best of several noisy runs is often
one that was lucky; run again, it counts with the mean. Standard library alone: it runs where GPUs
are, between two campaigns.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

Record = Mapping[str, Any]

# panel-07-mps is a run of the set panel-07; panel-solo-012 is alone, and counts for all sets.
_OF_A_SET = re.compile(r"(.+-\d+)-[a-z]+")
_AGAIN = "again"

HEAD = """\
# The best sharing of each job set, to be measured again; written by benchmarks/panel_winners.py.
name = "panels-again"
gpu = "{gpu}"
seed = 0
solo_every = 0

[timing]
settle_s = 0.5
window_s = 0.7
windows = 3
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="folder of the campaign's *.jsonl files")
    parser.add_argument("--profiles", type=Path, required=True, help="folder of solo profiles")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    records = read(asked.runs)
    shared = sets(records)
    if not shared:
        parser.error(f"{asked.runs}: no shared run of a panel that ran to the end")
    winners = list(again(shared, solos(records), alone(asked.profiles, records)))
    text = HEAD.format(gpu=records[0]["gpu"]) + "".join(map(run_text, winners))
    asked.out.write_text(text)
    print(f"{len(winners)} runs measure the best of {len(shared)} sets again")


def read(folder: Path) -> list[Record]:
    """The runs in `folder` that ran to the end."""
    lines = (line for path in sorted(folder.glob("*.jsonl")) for line in whole_lines(path))
    records = (json.loads(line) for line in lines)
    return [run for run in records if all(each["outcome"] == "ok" for each in run["tenants"])]


def whole_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.strip()]


def sets(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The shared runs of each set, by its name."""
    found: dict[str, list[Record]] = {}
    for run in records:
        match = _OF_A_SET.fullmatch(run["id"])
        if match and run["purpose"] == "validation" and len(run["tenants"]) > 1:
            found.setdefault(match[1], []).append(run)
    return dict(sorted(found.items()))


def solos(records: Iterable[Record]) -> dict[str, Record]:
    """The solo run of each workload, by the workload's name."""
    return {
        run["tenants"][0]["workload"]["name"]: run
        for run in records
        if run["purpose"] == "solo" and len(run["tenants"]) == 1
    }


def alone(folder: Path, records: Iterable[Record]) -> dict[str, float]:
    """Seconds of a step of each workload in its profile."""
    names = {tenant["workload"]["name"] for run in records for tenant in run["tenants"]}
    missing = sorted(name for name in names if not (folder / f"{name}.json").is_file())
    if missing:
        sys.exit(f"{folder}: no profile of {', '.join(missing)}. Give their folder by --profiles.")
    return {name: step_s(json.loads((folder / f"{name}.json").read_text())) for name in names}


def step_s(measured: Record) -> float:
    """Seconds of a step in the middle window of a profile or tenant."""
    return median(each["seconds"] / each["steps"] for each in measured["windows"])


def again(
    shared: Mapping[str, Sequence[Record]],
    solo: Mapping[str, Record],
    alone_s: Mapping[str, float],
) -> Iterator[dict[str, Any]]:
    """For each set a run of its best sharing; of one after another, a run of each job alone."""
    for name, runs in shared.items():
        best = max(runs, key=lambda run: throughput(run, alone_s))
        if throughput(best, alone_s) > serial(best, solo, alone_s):
            yield repeat(best, f"{name}-{_AGAIN}")
        else:
            jobs = dict.fromkeys(tenant["workload"]["name"] for tenant in best["tenants"])
            known = [solo[job] for job in jobs if job in solo]
            for number, run in enumerate(known, start=1):
                yield repeat(run, f"{name}-{_AGAIN}.{number}")


def throughput(run: Record, alone_s: Mapping[str, float]) -> float:
    """Sum over tenants of the solo step over the step beside the others."""
    return sum(alone_s[each["workload"]["name"]] / step_s(each) for each in run["tenants"])


def serial(run: Record, solo: Mapping[str, Record], alone_s: Mapping[str, float]) -> float:
    """The same of the tenants of `run` one after another: 1, but for what drifted since."""
    names = [tenant["workload"]["name"] for tenant in run["tenants"]]
    return mean(throughput(solo[name], alone_s) if name in solo else 1.0 for name in names)


def repeat(run: Record, name: str) -> dict[str, Any]:
    """`run`, to be done again under the id `name`."""
    return {
        "id": name,
        "sharing": run["sharing"],
        "purpose": "repeat",
        "repeats": run["id"],
        "workloads": [tenant["workload"] for tenant in run["tenants"]],
    }


def run_text(run: Mapping[str, Any]) -> str:
    """`run` as a campaign's plan has it."""
    return "\n[[runs]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in run.items())


def toml(value: Any) -> str:
    """`value` in TOML, whose strings, numbers and lists are JSON's; it has no null."""
    if isinstance(value, Mapping):
        known = (f"{key} = {toml(each)}" for key, each in value.items() if each is not None)
        return "{" + ", ".join(known) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
