"""Plans that `advisor run` runs on a GPU, with what was predicted of them beforehand beside them.

    python benchmarks/run_check.py --draw DIR        writes the plans, with predictions
    python benchmarks/run_check.py --draw DIR --scripts PROFILES    the same of scripts' mixes
    python benchmarks/run_check.py --run DIR [--device 0] [--deadline S]     runs them
    python benchmarks/run_check.py --compare DIR     predicted beside measured

Jobs are drawn by a seed from all that were measured on the GPU and take a minute at most to load.
Plans that DIR has runs of are not run again. Drawing and comparing need all that the advisor needs,
running the standard library, numpy, torch and timm.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from time import monotonic

GPU, SEED, JOBS = "h200-141gb", 1717, 3
SHARINGS = {"naive": "naive", "mps": "mps", "limits": "mps=40,40,40"}
# Compiled and graphed ones load for minutes; the largest do as well.
SLOW = ("compiled", "graph", "29gb", "nasnet", "beit_large", "loader")
RUN_S = 40.0
# Where scripts lie in what is committed, and where they lie here.
KEPT, HERE = "/benchmarks/scripts", Path(__file__).resolve().parent / "scripts"


def draw(folder: Path) -> None:
    from advisor.api import Advisor
    from advisor.launch.plan_file import SavedPlan
    from advisor.sharing import parse_sharing
    from advisor.validate.executed_plan import document_of
    from advisor.workload.store import profile_paths

    names = sorted(n for n in profile_paths(GPU) if not any(each in n for each in SLOW))
    drawn = random.Random(SEED)  # a draw, no secret
    advisor = Advisor(GPU)
    for name, words in SHARINGS.items():
        jobs = advisor.chosen_jobs(drawn.sample(names, JOBS))
        saved = SavedPlan(GPU, parse_sharing(words), jobs, None)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"plan-{name}.json").write_text(document_of(saved, advisor))


def draw_scripts(folder: Path, profiles: Path) -> None:
    from script_bench import LIMITS, MIXES

    from advisor.api import Advisor
    from advisor.launch.plan_file import SavedPlan
    from advisor.sharing import parse_sharing
    from advisor.validate.executed_plan import document_of

    advisor = Advisor(GPU, profiles=profiles)
    folder.mkdir(parents=True, exist_ok=True)
    for mix in "abc":
        jobs = advisor.chosen_jobs(MIXES[mix])
        for name in SHARINGS:
            words = LIMITS[mix] if name == "limits" else name
            saved = SavedPlan(GPU, parse_sharing(words), jobs, None)
            (folder / f"plan-{mix}-{name}.json").write_text(document_of(saved, advisor))


def run(folder: Path, device: str, deadline_s: float) -> int:
    began, failed = monotonic(), 0
    for plan in sorted(folder.glob("plan-*.json")):
        out = folder / plan.name.replace("plan-", "runs-").replace(".json", ".jsonl")
        if out.exists() or monotonic() - began + RUN_S + 25 > deadline_s:
            continue
        local = out.with_suffix(".here.json")
        local.write_text(plan.read_text().replace(json.dumps(KEPT), json.dumps(str(HERE))))
        words = ["run", local, "--device", device, "--apply", "--deadline", RUN_S, "--grace", 5]
        command = [sys.executable, "-m", "advisor.execution", *map(str, [*words, "--out", out])]
        done = subprocess.run(command, check=False, timeout=RUN_S + 90)
        failed += done.returncode != 0
        local.unlink()
        if out.exists():
            out.write_text(out.read_text().replace(str(HERE), KEPT))
        print(f"{plan.name}: exit {done.returncode}", flush=True)
    return 1 if failed else 0


def compare(folder: Path) -> str:
    from advisor.measure.execution.execution_plan import read_execution_plan
    from advisor.workload.stored_runs import read_runs

    lines = ["| plan | job | predicted, ms | interval, ms | measured, ms | error | inside |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for path in sorted(folder.glob("plan-*.json")):
        plan = read_execution_plan(path)
        runs = folder / path.name.replace("plan-", "runs-").replace(".json", ".jsonl")
        for found in read_runs(runs) if runs.exists() else ():
            for job, tenant in zip(plan.jobs, found.tenants, strict=True):
                assert job.step_s is not None
                low, middle, high = (1e3 * each for each in
                                     (job.step_s.p05, job.step_s.p50, job.step_s.p95))  # fmt: skip
                measured = 1e3 * tenant.step_s
                lines.append(
                    f"| {plan.sharing} | {job.name} | {middle:.1f} | {low:.1f} to {high:.1f} | "
                    f"{measured:.1f} | {middle / measured - 1:+.1%} | "
                    f"{'yes' if low <= measured <= high else 'no'} |"
                )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs drawn plans beside their predictions.")
    for verb in ("--draw", "--run", "--compare"):
        parser.add_argument(verb, type=Path, metavar="DIR")
    parser.add_argument("--scripts", type=Path, metavar="PROFILES")
    parser.add_argument("--device", default="0")
    parser.add_argument("--deadline", type=float, default=600.0)
    asked = parser.parse_args()
    if asked.draw and asked.scripts:
        draw_scripts(asked.draw, asked.scripts)
    elif asked.draw:
        draw(asked.draw)
    if asked.compare:
        print(compare(asked.compare))
    return run(asked.run, asked.device, asked.deadline) if asked.run else 0


if __name__ == "__main__":
    sys.exit(main())
