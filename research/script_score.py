"""Scripts of users: the hook's cost, their profiles beside the zoo's, and mixes of them predicted.

    python -m research.script_score benchmarks/scripts > benchmarks/scripts/score.json

In the folder lie ``measured``, which `benchmarks/script_bench.py` filled; ``run``: plans of the
same mixes, predicted and then run by `benchmarks/run_check.py`; and what `benchmarks/whole_way.py`
measured: folders of `COMMANDS`, drawn mixes that were profiled, planned and run by the commands,
and what `script_twins` reads of scripts beside workloads of the zoo that do the same.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from advisor.hardware.catalogue import gpu
from advisor.measure.execution.execution_plan import read_execution_plan
from advisor.plan.paced_predictor import PacedPredictor
from advisor.prediction.fit.own_pace_fit import own_paces
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import Predicts
from advisor.validate.predicted_and_measured import RunComparison
from advisor.validate.validate import compared
from advisor.workload.profile import Profile
from advisor.workload.store import model_path
from advisor.workload.stored_runs import read_runs
from research.files import profiles_in
from research.script_twins import ALIKE, turns, twins

# Where mixes went the whole way by the commands, by folder.
COMMANDS = {
    "commands": "an H100",
    "commands-h200": "H200s of an unsteady host",
    "commands-h200-later": "an H200",
    "commands-h100-later": "H100s of a slow, unsteady host",
    "commands-h100-quieter": "H100s, by traces that know of waits",
    "commands-h100-waiting": "H100s, scripts that read their loss in every step",
    "commands-h200-copies": "H200s, by traces that tell copies from the host",
    "commands-h200-again": "H200s 20 minutes later, from the same profiles",
    "commands-h200-turns": "H200s of a slower host, by replay in which a wait ends a turn",
    "commands-h200-replay": "H200s of one more host, planned with replay not corrected in turns",
}

# The pace that a script prints holds from here on: what it compiles and warms up lies before.
_WARM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptAlone:
    """One script by itself; shares, and None where it was not measured.

    Attributes:
        hook_us: In the hook, each step.
        hook_share: Of a step.
        own_clock: The profile's step over the median that the script prints, less 1.
        step: The profile's step over that of the same work in the zoo, less 1.
        on_gpu: The same of the GPU's part of it.
        memory: The same of the memory of the process.
    """

    script: str
    hook_us: float | None
    hook_share: float | None
    own_clock: float | None
    step: float | None
    on_gpu: float | None
    memory: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """A step of one script in one run with others, seconds."""

    run: str
    sharing: str
    script: str
    measured_s: float
    p05_s: float
    p50_s: float
    p95_s: float

    @property
    def error(self) -> float:
        return self.p50_s / self.measured_s - 1

    @property
    def inside(self) -> bool:
        return self.p05_s <= self.measured_s <= self.p95_s


def alone(folder: Path, profiles: Mapping[str, Profile]) -> Iterator[ScriptAlone]:
    """Each script that has a profile, by itself."""
    for path in sorted(folder.glob("cost-*.json")):
        script = path.stem.removeprefix("cost-")
        own, zoo = profiles[script], profiles.get(ALIKE.get(script, ""))
        cost = _read(path)
        printed = _read(folder / f"alone-{script}.json")["step_s"][_WARM:]
        yield ScriptAlone(
            script=script,
            hook_us=1e6 * cost["in_hook_s"] / cost["steps"],
            hook_share=cost["in_hook_s"] / cost["window_s"],
            own_clock=own.step_s / median(printed) - 1,
            step=_over(own, zoo, lambda each: each.step_s),
            on_gpu=_over(own, zoo, lambda each: each.gpu_s),
            memory=_over(own, zoo, lambda each: each.memory.device_mib),
        )


def together(
    folder: Path, profiles: Mapping[str, Profile], predictor: Predicts, key: str
) -> Iterator[ScriptStep]:
    """Each script of each run, as `advisor validate` predicts and compares it."""
    runs = [run for path in sorted((folder / "runs").glob("*.jsonl")) for run in read_runs(path)]
    yield from _steps(compared(runs, profiles, predictor, gpu(key)))


def _steps(runs: Iterable[RunComparison]) -> Iterator[ScriptStep]:
    for found in runs:
        for job in found.jobs:
            yield ScriptStep(
                run=found.run.id, sharing=found.run.sharing, script=job.job,
                measured_s=job.measured_s, p05_s=job.predicted_s.p05,
                p50_s=job.predicted_s.p50, p95_s=job.predicted_s.p95,
            )  # fmt: skip


def by_plan(folder: Path) -> Iterator[ScriptStep]:
    """Each script of each plan that `advisor run` ran, as predicted before."""
    for path in sorted(folder.glob("plan-*.json")):
        plan = read_execution_plan(path)
        runs = path.with_name(path.name.replace("plan-", "runs-")).with_suffix(".jsonl")
        for found in read_runs(runs):
            for job, tenant in zip(plan.jobs, found.tenants, strict=True):
                predicted = job.step_s
                assert predicted is not None
                yield ScriptStep(
                    run=path.stem, sharing=found.sharing, script=job.name,
                    measured_s=tenant.step_s,
                    p05_s=predicted.p05, p50_s=predicted.p50, p95_s=predicted.p95,
                )  # fmt: skip


def unsteady_in(folder: Path) -> list[str]:
    """The scripts whose profiles in the folder are marked: their windows disagree."""
    return [name for name, each in profiles_in(folder).items() if each.unsteady is not None]


def gpu_bound_in(folder: Path) -> list[str]:
    """The scripts in the folder that fill the GPU."""
    return [name for name, each in profiles_in(folder).items() if is_gpu_bound(each)]


def by_runs_before(folder: Path) -> dict[str, list[ScriptStep]]:
    """Each script of each run, from the profiles alone and with what the runs before it taught.

    By the shipped model, which has seen none of them, on a host that nobody checked. Where traces
    tell when hosts wait for the GPU, also as if they did not.
    """
    runs = [run for path in sorted(folder.glob("runs-*.jsonl")) for run in read_runs(path)]
    runs.sort(key=lambda run: run.provenance.date)
    profiles, card = profiles_in(folder / "profiles"), gpu(runs[0].gpu)
    plain = Predictor(card, load_model(model_path(None)))
    found = {"profiles alone": [*_steps(compared(runs, profiles, plain, card))], "runs before": []}
    for at, run in enumerate(runs):
        paced = PacedPredictor(plain, own_paces(profiles, runs[:at], plain))
        found["runs before"] += _steps(compared([run], profiles, paced, card))
    if any(each.trace and each.trace.waits_us for each in profiles.values()):
        silent = {name: _without_waits(each) for name, each in profiles.items()}
        found["no waits"] = [*_steps(compared(runs, silent, plain, card))]
    return found


def _without_waits(profile: Profile) -> Profile:
    return replace(profile, trace=profile.trace and replace(profile.trace, waits_us=None))


def by_commands(folder: Path) -> dict[str, Any]:
    """What the commands foretold on one host, and what the runs before each would have taught."""
    before = by_runs_before(folder)
    return {
        "by_plan": _scored(by_plan(folder)),
        "by_runs_before": {name: _scored(iter(steps)) for name, steps in before.items()},
        "unsteady": unsteady_in(folder / "profiles"),
        "gpu_bound": gpu_bound_in(folder / "profiles"),
    }


def score(scripts: Path) -> dict[str, Any]:
    """Everything in the folder of `scripts`, by the shipped model."""
    folder = scripts / "measured"
    (of_gpu,) = (folder / "profiles").iterdir()
    profiles = profiles_in(of_gpu)
    predictor = Predictor(gpu(of_gpu.name), load_model(model_path(None))).on_known_cores()
    return {
        "gpu": of_gpu.name,
        "alone": [asdict(each) for each in alone(folder, profiles)],
        "twins": [*twins(scripts / "twins-h200")],
        "turns": [*turns(scripts / "twin-turns", "one core"),
                  *turns(scripts / "twin-turns-over-cores", "core by core")],
        "together": _scored(together(folder, profiles, predictor, of_gpu.name)),
        "by_plan": _scored(by_plan(scripts / "run")),
        "by_commands": {name: by_commands(scripts / name) for name in COMMANDS},
    }  # fmt: skip


def _scored(steps: Iterator[ScriptStep]) -> list[dict[str, Any]]:
    return [asdict(each) | {"error": each.error, "inside": each.inside} for each in steps]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _over(
    one: Profile, other: Profile | None, number: Callable[[Profile], float | None]
) -> float | None:
    mine, theirs = number(one), None if other is None else number(other)
    return None if mine is None or theirs is None else mine / theirs - 1


if __name__ == "__main__":
    print(json.dumps(score(Path(sys.argv[1])), indent=1))
