"""Writes down what the fitted model recommends for each job set, before any of them is run.

    python benchmarks/recommend_panels.py benchmarks/panels

asks the model in ``models/`` for the sharing with the highest throughput, of all that it considers
but MIG and phases, and adds it to ``plan.toml`` where the set does not run so anyway; of whole
jobs, which have steps to do, for the one with the shortest makespan, phases too.
``recommended.json`` has every recommendation with the digest of the model that made it, and is
never written again.
"""

import argparse
import json
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from advisor import recommend
from advisor.plan import ObjectiveName
from advisor.plan.recommendation import Plan
from advisor.sharing import Sharing, parse_sharing
from advisor.sharing.traversal import instance_sets
from advisor.workload.job import Job
from advisor.workload.store import load_profile, model_path
from advisor.workload.writing import write_whole
from research.completion import job_of_steps

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where draw_panels.py wrote plan.toml")
    asked = parser.parse_args()
    said, plan = asked.folder / "recommended.json", asked.folder / "plan.toml"
    if said.exists():
        parser.error(f"{said} is there: what was recommended is fixed. Draw another panel.")
    text = plan.read_text()
    document = recommended(tomllib.loads(text))
    write_whole(plan, with_recommended(text, document["sets"]))
    write_whole(said, json.dumps(document, indent=1) + "\n")
    new = sum(each["run"].endswith("-recommended") for each in document["sets"])
    print(f"{len(document['sets'])} recommendations; {new} are runs of their own")


def recommended(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The recommendation for each set of `plan`, in its order, and whose it is."""
    model = model_path(ROOT / "models")
    sets: dict[str, list[Mapping[str, Any]]] = {}
    for run in plan["runs"]:
        sets.setdefault(run["id"].rpartition("-")[0], []).append(run)
    return {
        "schema": 1,
        "gpu": plan["gpu"],
        "objective": _objective(plan["runs"][0]),
        "model_sha256": sha256(model.read_bytes()).hexdigest(),
        "sets": [_of_set(name, runs, plan["gpu"]) for name, runs in sets.items()],
    }


def _objective(run: Mapping[str, Any]) -> ObjectiveName:
    return "makespan" if "steps" in run else "throughput"


def _of_set(name: str, runs: Sequence[Mapping[str, Any]], gpu: str) -> dict[str, Any]:
    best = best_of(runs[0], gpu)
    there = {parse_sharing(run["sharing"]): run["id"] for run in runs}
    serial = str(best.sharing) == "serial"
    said: dict[str, Any] = {"throughput": round(best.prediction.weighted_speedup, 4)}
    if "steps" in runs[0]:
        said = {"steps": runs[0]["steps"], "makespan_s": round(best.makespan_s or 0.0, 4)}
    return {
        "set": name,
        "jobs": runs[0]["workloads"],
        "sharing": str(best.sharing),
        **said,
        "run": f"{name}-serial" if serial else there.get(best.sharing, f"{name}-recommended"),
    }


def best_of(run: Mapping[str, Any], gpu: str) -> Plan:
    """The best plan for the jobs of `run` that can be run here."""
    folder = ROOT / "profiles"
    alone = [load_profile(name, gpu, folder) for name in run["workloads"]]
    jobs = [Job(each) for each in alone]
    if "steps" in run:
        jobs = [job_of_steps(*each) for each in zip(alone, run["steps"], strict=True)]
    advised = recommend(
        jobs, gpu, _objective(run), models=ROOT / "models", calibration=Path("none")
    )
    return next(plan for plan in advised.plans if _can_be_run(plan.sharing, run))


def _can_be_run(sharing: Sharing, run: Mapping[str, Any]) -> bool:
    """MIG instances nobody makes here, and in phases only whole jobs run."""
    return not instance_sets(sharing) and ("steps" in run or sharing.mode != "phases")


def with_recommended(text: str, sets: Sequence[Mapping[str, Any]]) -> str:
    """The plan `text` with a run after the others of each set whose recommendation is new."""
    new = {each["set"]: each for each in sets if each["run"].endswith("-recommended")}
    head, *runs = text.split("\n[[runs]]\n")
    names = [tomllib.loads(run)["id"].rpartition("-")[0] for run in runs]
    written = [head]
    for run, name, following in zip(runs, names, [*names[1:], ""], strict=True):
        written.append(run)
        if name in new and following != name:
            written.append(_as_recommended(run, new[name]))
    return "\n[[runs]]\n".join(written)


def _as_recommended(run: str, said: Mapping[str, Any]) -> str:
    """The run `run` of a plan, shared as recommended."""
    changed = {"id": said["run"], "sharing": said["sharing"]}
    entry = tomllib.loads(run) | changed
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())


if __name__ == "__main__":
    main()
