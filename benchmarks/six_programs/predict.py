"""Predicts the mixes of the six programs, before any of them runs, from three descriptions.

    python -m benchmarks.six_programs.predict OUT/results.jsonl --out OUT/predictions.json

``bare`` has what nvidia-smi showed once a second of 30 s alone, and the printed step; ``counters``
has DCGM's shares in addition; ``full`` is the profile of `advisor profile`.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Any

from advisor.api import Advisor
from advisor.files.writing import write_whole
from advisor.hardware.machine import Counters
from advisor.plan.ranking import by_precedence
from advisor.plan.rules import Conditions
from advisor.plan.values import Question
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Profile
from advisor.workload.store import NO_CALIBRATION, model_path, parse_profile
from benchmarks.programs.measure import MODES, sharing_of
from benchmarks.six_programs.program_list import BATCHES, MIXES
from research.programs import printed_step_s, results_in

_SHARES = ("gract", "sm_active", "sm_occupancy", "tensor_active", "dram_active")

Results = Mapping[str, Mapping[str, Any]]


def descriptions(results: Results, name: str) -> dict[str, Profile] | None:
    """Return the descriptions of a program by their names; None if one was not measured."""
    watched = results.get(f"alone/{name}", {})
    profile = results.get(f"profile/{name}", {}).get("profile")
    if not profile or not watched.get("smi"):
        return None
    full = parse_profile(json.dumps(profile).encode(), name)
    _, gpu_percent, memory_percent, power_w, used_mib = [
        *map(mean, zip(*watched["smi"], strict=True))
    ]
    (job,) = watched["jobs"]
    bare = MinimalProfile(
        schema=1,
        workload=name,
        gpu=full.gpu,
        batch_size=BATCHES[name],
        step_s=printed_step_s(job["stamps"], watched["window"]),
        memory_mib=used_mib - watched["before_mib"],
        power_w=power_w,
        gpu_utilization=gpu_percent / 100,
        memory_utilization=memory_percent / 100,
    ).whole()
    described = {"bare": bare, "full": full}
    if rows := watched["counters"]:
        shares = {share: mean(row[share] for row in rows) for share in _SHARES}
        counters = Counters(source="dcgm", memory_utilization=memory_percent / 100, **shares)
        described["counters"] = replace(bare, counters=counters)
    return described


def predicted(advisor: Advisor, profiles: Sequence[Profile]) -> dict[str, Any]:
    """Return each way to run the jobs with its predicted steps, and the ways that come first.

    ``first`` is the first of the ways that are run, ``recommended`` the first of all without MIG.
    """
    jobs = advisor.jobs(list(profiles))
    forecasts = {mode: advisor.predict(jobs, sharing_of(mode, len(jobs))) for mode in MODES}
    serial = advisor.predict(jobs, "serial")
    question = Question(gpu=advisor.card, predictor=advisor.predictor, objective="throughput")
    (first, _), *_ = by_precedence([serial, *forecasts.values()], question)
    best = advisor.recommend(jobs, "throughput", conditions=Conditions(root=False)).best
    modes = {id(each): mode for mode, each in forecasts.items()}
    return {
        "first": modes.get(id(first), "serial"),
        "recommended": str(best.prediction.sharing),
        "ways": {
            mode: [
                {"step_s": asdict(job.step_s), "slowdown": job.slowdown}
                for job in each.prediction.jobs
            ]
            for mode, each in forecasts.items()
        },
    }


def predictions(results: Results) -> dict[str, Any]:
    """Return the predictions of all mixes whose programs are described, with what they had seen."""
    described = {name: each for name in BATCHES if (each := descriptions(results, name))}
    (card,) = {profiles["full"].gpu for profiles in described.values()}
    cores = min(results[f"alone/{name}"]["cores"] for name in described)
    advisor = Advisor(gpu=card, calibration=NO_CALIBRATION, host_cores=cores)
    on_this_host = advisor.uncalibrated.on_known_host()
    vars(advisor)["uncalibrated"] = on_this_host  # the profiles' own host runs the mixes
    kinds = sorted({kind for profiles in described.values() for kind in profiles})
    return {
        "schema": 1,
        "gpu": card,
        "made_at": _now(),
        "model_sha256": sha256(model_path().read_bytes()).hexdigest(),
        "runs_before": sum(key.startswith("mix/") for key in results),
        "mixes": [
            {
                "mix": f"{number:02d}",
                "jobs": names,
                "made_at": _now(),
                "by": {
                    kind: predicted(advisor, [described[name][kind] for name in names])
                    for kind in kinds
                    if all(kind in described[name] for name in names)
                },
            }
            for number, names in enumerate(MIXES)
            if described.keys() >= set(names)
        ],
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main() -> int:
    """Write the predictions, once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--partial", action="store_true", help="accept programs not measured yet")
    options = parser.parse_args()
    if options.out.exists():
        print(f"{options.out} exists: predictions are written once.")
        return 0
    results = results_in(options.results)
    missing = [name for name in BATCHES if descriptions(results, name) is None]
    if missing and not options.partial:
        print(f"Not measured: {', '.join(missing)}. Run the stage profile again, or add --partial.")
        return 1
    document = predictions(results)
    write_whole(options.out, json.dumps(document, indent=1) + "\n")
    for mix in document["mixes"]:
        firsts = {kind: (each["first"], each["recommended"]) for kind, each in mix["by"].items()}
        print(mix["mix"], *mix["jobs"], firsts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
