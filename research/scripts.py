"""Mixes of training scripts, planned and run by the commands, beside predictions from profiles.

``benchmarks/whole_way.py`` profiled the scripts in ``benchmarks/scripts/`` and ran mixes of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from advisor.hardware.gpus import gpu
from advisor.learn.scores import compare, profiles_of, sharing_of
from advisor.prediction.model import load_model
from advisor.prediction.prediction import all_known
from advisor.prediction.predictor import Predictor
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.store import model_path
from research.baselines import UNFITTED, with_baselines
from research.files import BENCHMARKS, profiles_in, runs_in
from research.score_tables import MODE_WORDS, markdown
from research.scoreboard import differences
from research.steps import joined

_HEADINGS = ("measured on", "steps", "MAPE", "median", "in 90 % interval")

# What distinguishes a host, by the folder of its results.
HOSTS = {
    "h100-1": "H100, noisy host",
    "h100-2": "H100, slow host",
    "h100-3": "H100, profiles with waits",
    "h100-4": "H100, scripts that read the loss in every step",
    "h200-1": "H200, unsteady host",
    "h200-2": "H200, few runs",
    "h200-3": "H200, fast host",
    "h200-4": "H200, 20 minutes after the line above, with its profiles",
    "h200-5": "H200, slower host",
    "h200-6": "H200, one more host",
}

_RULES = {"fair-share": UNFITTED["fair-share"]}

# Mixes that were run once more from profiles of another folder.
_SAME_PROFILES = {"h200-4": "h200-3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """A step of one script in one run with others.

    Attributes:
        host: Folder of the results.
        error: Predicted over measured step, less 1; that of fair share for `fair_share`.
        inside: Whether the measured step is inside its 90 % interval.
        again: Share by which the step differs in a second run of the mix on this host; None
            without one.
    """

    host: str
    mode: Mode
    error: float
    fair_share: float | None
    inside: bool
    again: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptErrors:
    """Errors of some steps of scripts, as shares of the measured step.

    Attributes:
        fair_share: Mean absolute error of that rule; None if it does not cover all of the steps.
        noise: Mean absolute difference of steps measured twice; None without any.
        noise_mape: Mean absolute error of these steps.
    """

    name: str
    steps: int
    mape: float
    median: float
    inside: float
    fair_share: float | None
    noise: float | None
    noise_mape: float | None


def script_scores(folder: Path = BENCHMARKS / "scripts") -> tuple[ScriptErrors, ...]:
    """Return the errors of all steps, then by mode, then by host.

    Each step is predicted from the profiles alone by the shipped model, which saw none of the runs.
    """
    steps = [step for name in HOSTS for step in _steps(folder / name)]
    groups: dict[str, list[ScriptStep]] = {"all": steps}
    for mode in SHARED_MODES:
        groups[MODE_WORDS[mode]] = [step for step in steps if step.mode == mode]
    for step in steps:
        groups.setdefault(step.host, []).append(step)
    return tuple(_errors(name, group) for name, group in groups.items() if group)


def _errors(name: str, steps: Sequence[ScriptStep]) -> ScriptErrors:
    shares = all_known(step.fair_share for step in steps)
    twice = [step for step in steps if step.again is not None]
    return ScriptErrors(
        name=name,
        steps=len(steps),
        mape=mean(abs(step.error) for step in steps),
        median=median(abs(step.error) for step in steps),
        inside=mean(step.inside for step in steps),
        fair_share=mean(map(abs, shares)) if shares else None,
        noise=mean(step.again or 0.0 for step in twice) if twice else None,
        noise_mape=mean(abs(step.error) for step in twice) if twice else None,
    )


def _steps(folder: Path) -> Iterable[ScriptStep]:
    source = folder.with_name(_SAME_PROFILES.get(folder.name, folder.name))
    profiles, runs = profiles_in(source / "profiles"), runs_in(folder)
    first = {(run.names, run.sharing): run for run in runs_in(source)} if source != folder else {}
    card = gpu(runs[0].gpu)
    predictor = Predictor(card, load_model(model_path()))
    for run in runs:
        if not run.shows_pace:
            continue
        before = first.get((run.names, run.sharing))
        apart = differences(before, run) if before else [None] * len(run.tenants)
        alone = profiles_of(run, profiles)
        comparison = with_baselines(compare(run, alone, predictor), alone, card, _RULES)
        for job, again in zip(comparison.jobs, apart, strict=True):
            share_s = job.baselines_s["fair-share"]
            yield ScriptStep(
                host=folder.name,
                mode=sharing_of(run).mode,
                error=job.error,
                fair_share=None if share_s is None else share_s / job.measured_s - 1,
                inside=job.inside,
                again=again,
            )


def scripts_section(scores: Sequence[ScriptErrors]) -> str:
    """Return the table with a heading."""
    return joined(
        "## Scripts, from their profiles to their runs",
        "Eight scripts, written as their authors would, were profiled, planned, exported and run "
        "by the commands on ten hosts (`benchmarks/whole_way.py`). The shipped model, which saw "
        "none of these runs, predicted them from the profiles alone; no host was checked.",
        scripts_table(scores),
    )


def scripts_table(scores: Iterable[ScriptErrors]) -> str:
    """Return the table in Markdown: all scripts first."""
    rows = [
        (
            "**all scripts**" if row.name == "all" else HOSTS.get(row.name, row.name),
            str(row.steps),
            *map(percent, (row.mape, row.median, row.inside)),
        )
        for row in scores
    ]
    return markdown(_HEADINGS, rows)
