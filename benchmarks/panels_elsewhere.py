"""Writes the plan that measures a panel's runs once more, on another host.

    python benchmarks/panels_elsewhere.py benchmarks/panels --out benchmarks/panels-elsewhere

Every shared run that was made of the plan in the first folder is made again, what was run twice
there twice, in an order of its own; each job runs alone between them, as it did there. So every way
to run a set counts for as much on one host as on the other.
"""

import argparse
import json
import tomllib
from pathlib import Path
from random import Random

from advisor.workload.writing import write_whole
from benchmarks.panel_winners import Record, read, repeat, run_text
from research.files import PROFILES

ELSEWHERE = "elsewhere"

HEAD = """\
# The runs of another panel once more, on another host, in shuffled order: written by
# benchmarks/panels_elsewhere.py. Solo runs are how they run serially.
name = "panels-{word}"
gpu = "{gpu}"
seed = {seed}
prefix = "{prefix}{word}-"
solo_every = 3
solos_of_each = 1
small = [
{small}
]

[timing]
settle_s = {settle_s}
window_s = {window_s}
windows = {windows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the panel's plan.toml is")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    plan = tomllib.loads((asked.folder / "plan.toml").read_text())
    runs = made_of(plan["prefix"], read(PROFILES / plan["gpu"] / "runs"))
    Random(f"{plan['seed']} {ELSEWHERE}").shuffle(runs)
    small = "\n".join(f"    {json.dumps(name)}," for name in plan["small"])
    head = HEAD.format(**plan | plan["timing"] | {"word": ELSEWHERE, "small": small})
    asked.out.mkdir(parents=True, exist_ok=True)
    write_whole(asked.out / "plan.toml", head + "".join(map(run_text, map(again, runs))))
    print(f"{len(runs)} runs are to be made again")


def made_of(prefix: str, records: list[Record]) -> list[Record]:
    """The shared runs of the panel whose ids begin with `prefix`, but not those made elsewhere."""
    return [
        run
        for run in records
        if run["id"].startswith(prefix)
        and len(run["tenants"]) > 1
        and run["purpose"] in ("validation", "repeat")
        and not run["id"].endswith(ELSEWHERE)
    ]


def again(run: Record) -> dict[str, object]:
    """`run` once more; a repeat's original is that of both."""
    return repeat(run, f"{run['id']}-{ELSEWHERE}") | {
        "repeats": run["repeats"] or run["id"],
        "workloads": [tenant["workload"]["name"] for tenant in run["tenants"]],
    }


if __name__ == "__main__":
    main()
