"""Mixes of training scripts, planned and run by the commands, beside predictions from profiles.

``benchmarks/whole_way.py`` profiled the scripts in ``benchmarks/scripts/`` and ran mixes of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from advisor.hardware.gpus import gpu
from advisor.learn.scores import sharing_of
from advisor.prediction.model import load_model
from advisor.prediction.predictor import Predictor
from advisor.report.scores import MODE_WORDS, markdown, percent
from advisor.sharing import Mode
from advisor.validate import compared
from advisor.workload.store import model_path
from research.files import BENCHMARKS, profiles_in, runs_in

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

# Mixes that were run once more from profiles of another folder.
_SAME_PROFILES = {"h200-4": "h200-3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """A step of one script in one run with others.

    Attributes:
        host: Folder of the results.
        error: Predicted over measured step, less 1.
        inside: Whether the measured step is inside its 90 % interval.
    """

    host: str
    gpu: str
    mode: Mode
    error: float
    inside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptErrors:
    """Errors of some steps of scripts, as shares of the measured step."""

    name: str
    steps: int
    mape: float
    median: float
    inside: float


def script_scores(folder: Path = BENCHMARKS / "scripts") -> tuple[ScriptErrors, ...]:
    """Return the errors of all steps, then by GPU and mode, then by host.

    Each step is predicted from the profiles alone by the shipped model, which saw none of the runs.
    """
    steps = [step for name in HOSTS for step in _steps(folder / name)]
    groups: dict[str, list[ScriptStep]] = {"all": steps}
    for step in steps:
        groups.setdefault(f"{step.gpu}, {MODE_WORDS[step.mode]}", []).append(step)
    for step in steps:
        groups.setdefault(step.host, []).append(step)
    return tuple(
        ScriptErrors(
            name=name,
            steps=len(group),
            mape=mean(abs(step.error) for step in group),
            median=median(abs(step.error) for step in group),
            inside=mean(step.inside for step in group),
        )
        for name, group in groups.items()
    )


def _steps(folder: Path) -> Iterable[ScriptStep]:
    source = folder.with_name(_SAME_PROFILES.get(folder.name, folder.name))
    profiles, runs = profiles_in(source / "profiles"), runs_in(folder)
    card = gpu(runs[0].gpu)
    predictor = Predictor(card, load_model(model_path()))
    for comparison in compared(runs, profiles, predictor, card):
        for job in comparison.jobs:
            yield ScriptStep(
                host=folder.name, gpu=card.key.partition("-")[0].upper(),
                mode=sharing_of(comparison.run).mode, error=job.error, inside=job.inside,
            )  # fmt: skip


def scripts_table(scores: Iterable[ScriptErrors]) -> str:
    """Return the table in Markdown: all scripts first."""
    rows = [
        ("**all scripts**" if row.name == "all" else HOSTS.get(row.name, row.name),
         str(row.steps), *map(percent, (row.mape, row.median, row.inside)))
        for row in scores
    ]  # fmt: skip
    return markdown(_HEADINGS, rows)
