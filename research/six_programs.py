"""Six programs described by nvidia-smi, by counters and by full profiles, predicted beforehand.

``benchmarks/six_programs/measure.py`` timed them alone and in mixes by their own prints, and
``benchmarks/six_programs/predict.py`` predicted the mixes before any of them ran.

    python -m research.six_programs [RESULTS.jsonl [PREDICTIONS.json]]

Without a file of predictions, the model as it is now predicts.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from advisor.prediction.prediction import Interval
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES
from benchmarks.six_programs.predict import descriptions, predictions
from benchmarks.six_programs.program_list import BATCHES
from research.files import BENCHMARKS
from research.programs import alone_steps_s, results_in, run_steps_s
from research.regret import Regret, regret_of
from research.score_tables import MODE_WORDS, REGRET_HEADINGS, RULE_WORDS, markdown, regret_rows
from research.steps import joined

FOLDER = BENCHMARKS / "six_programs" / "results"
_FILES = [str(FOLDER / "h200.jsonl.gz"), str(FOLDER / "predictions.json")]

_DESCRIPTIONS = {
    "bare": "nvidia-smi",
    "counters": "nvidia-smi and GPM's counters",
    "full": "full profile",
}
_RULES = {
    "always-serial": "serial",
    "always-naive": "naive",
    "always-mps": "mps",
    "equal-limits": "mps-limits",
}

Results = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedStep:
    """A step of one job in one run; `by` is the description from which it was predicted."""

    by: str
    mode: str
    measured_s: float
    predicted_s: Interval

    @property
    def error(self) -> float:
        """Predicted over measured step, less 1."""
        return self.predicted_s.p50 / self.measured_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SixScores:
    """The errors of each description, and what its choices give away.

    Attributes:
        regrets: By description and rule, over the mixes that ran in every mode.
        alone_twice: Mean difference of a step alone in two runs; None if none ran twice.
        together_twice: Mean difference of a step in two runs of a mix; None if none ran twice.
        beforehand: Whether no mix had run when the predictions were made.
    """

    steps: tuple[DescribedStep, ...]
    regrets: Mapping[str, Regret]
    alone_twice: float | None
    together_twice: float | None
    beforehand: bool


def six_scores(results: Results, document: Mapping[str, Any]) -> SixScores:
    """Compare the predictions in `document` with the mixes that ran to the end of their window."""
    alone = {name: alone_steps_s(results, name) for name in BATCHES}
    runs = {
        key: measured
        for key, run in results.items()
        if key.startswith("mix/") and (measured := _measured_s(run))
    }
    steps: list[DescribedStep] = []
    lost: dict[str, list[float]] = {}
    for mix in document["mixes"]:
        keys = {mode: f"mix/{mix['mix']}/{mode}" for mode in SHARED_MODES}
        ran = {mode: runs[key] for mode, key in keys.items() if key in runs}
        steps += [
            DescribedStep(
                by=by, mode=mode, measured_s=measured[name], predicted_s=Interval(**job["step_s"])
            )
            for by, predicted in mix["by"].items()
            for mode, measured in ran.items()
            for name, job in zip(mix["jobs"], predicted["ways"][mode], strict=True)
        ]
        if len(ran) == len(SHARED_MODES):
            throughput = {"serial": 1.0} | {
                mode: sum(mean(alone[name]) / step_s for name, step_s in measured.items())
                for mode, measured in ran.items()
            }
            chosen = _RULES | {by: predicted["first"] for by, predicted in mix["by"].items()}
            for rule, mode in chosen.items():
                share = 1 - throughput[mode] / max(throughput.values())
                lost.setdefault(rule, []).append(share)
    return SixScores(
        steps=tuple(steps),
        regrets={rule: regret_of(shares) for rule, shares in lost.items()},
        alone_twice=_difference(each for each in alone.values() if len(each) > 1),
        together_twice=_difference(
            (step_s, runs[f"{key}/again"][name])
            for key, measured in runs.items()
            if f"{key}/again" in runs
            for name, step_s in measured.items()
        ),
        beforehand=not document["runs_before"],
    )


def _measured_s(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the step of each job of a run; empty if one ended or printed too little."""
    measured = {name: step_s for name, step_s in run_steps_s(run).items() if step_s is not None}
    jobs = run.get("jobs", ())
    ended = any(job["exit"] is not None for job in jobs)
    return {} if ended or len(measured) < len(jobs) else measured


def _difference(pairs: Iterable[Sequence[float]]) -> float | None:
    """Return the mean difference of two runs as a share; None without any."""
    differences = [abs(second / first - 1) for first, second in pairs]
    return mean(differences) if differences else None


def errors_table(steps: Sequence[DescribedStep]) -> str:
    """Return the errors by description and mode, in Markdown."""
    rows = []
    for by, words in _DESCRIPTIONS.items():
        for mode in (*SHARED_MODES, "all"):
            group = [step for step in steps if step.by == by and mode in (step.mode, "all")]
            if group:
                errors = [abs(step.error) for step in group]
                inside = mean(step.predicted_s.contains(step.measured_s) for step in group)
                width = median(step.predicted_s.p95 / step.predicted_s.p05 for step in group)
                shares = map(percent, (mean(errors), median(errors), inside))
                word = MODE_WORDS.get(mode, mode)
                rows.append((words, word, str(len(group)), *shares, f"{width:.2f}"))
    headings = "described by|mode|steps|MAPE|median|in 90 % interval|p95/p05, median"
    return markdown(headings.split("|"), rows)


def programs_table(results: Results) -> str:
    """Return each program's numbers alone, in Markdown."""
    rows = []
    for name in BATCHES:
        if described := descriptions(results, name):
            bare, full = described["bare"], described["full"]
            counters = described.get("counters", bare).counters
            active = counters.sm_active if counters else None
            numbers = (bare.memory.device_mib, bare.power_w, 1e3 * bare.step_s, 1e3 * full.step_s)
            texts = (f"{number:.1f}" for number in numbers if number is not None)
            rows.append((name, percent(bare.busy_share), percent(active), *texts))
    headings = "program|GPU utilisation|SM active|memory, MiB|power, W|step, ms|profiled step, ms"
    return markdown(headings.split("|"), rows)


def six_programs_text(results: Results, document: Mapping[str, Any]) -> str:
    """Return the tables of results and predictions, with the sentences between them."""
    scores = six_scores(results, document)
    mixes = max((regret.n for regret in scores.regrets.values()), default=0)
    when = "before any mix ran" if scores.beforehand else "after mixes had run"
    return joined(
        "Six programs that this project had not measured trained alone on an H200 for 30 s, while "
        "nvidia-smi and the counters were read once a second. `advisor profile` then profiled "
        "the programs. Drawn mixes of 2 to 4 programs ran under time-slicing, MPS, and MPS with "
        f"equal limits (`benchmarks/six_programs`). The predictions were made {when}. Steps are "
        "timed by what the programs print.",
        programs_table(results),
        errors_table(scores.steps),
        "The programs had 16 virtual cores of a shared machine. Most errors from full profiles are "
        "of host-bound programs, which ran slower beside others than alone, also where the GPU had "
        f"room. {_unseen_waits(scores.steps)}",
        f"Two runs of a step alone differ by {percent(scores.alone_twice)}, and two runs in a mix "
        f"by {percent(scores.together_twice)}. {mixes} mixes ran in every mode:",
        markdown(REGRET_HEADINGS, regret_rows(scores.regrets, RULE_WORDS | _DESCRIPTIONS)),
    )


def _unseen_waits(steps: Sequence[DescribedStep]) -> str:
    """Return the step that is furthest below the measured one by nvidia-smi, and by its trace."""
    bare, full = ([step for step in steps if step.by == by] for by in ("bare", "full"))
    if not bare or not full:
        return ""
    without, traced = min(zip(bare, full, strict=True), key=lambda pair: pair[0].error)
    measured, known, unknown = (
        f"{1e3 * step_s:.0f} ms"
        for step_s in (without.measured_s, traced.predicted_s.p50, without.predicted_s.p50)
    )
    return (
        "One program waits for the GPU in each step again and again, which its trace shows and "
        f"nvidia-smi does not: once {known} were predicted from its full profile, {unknown} from "
        f"nvidia-smi's numbers, and {measured} measured."
    )


def six_programs_section() -> str:
    """Return the section on the six programs; empty if no results are kept."""
    if not FOLDER.is_dir():
        return ""
    text = six_programs_text(results_in(Path(_FILES[0])), json.loads(Path(_FILES[1]).read_text()))
    return joined("## Six programs, described in three ways", text)


def main(files: Sequence[str]) -> None:
    """Print the tables of a file of results, by its predictions or by those of today's model."""
    results = results_in(Path(files[0]))
    document = json.loads(Path(files[1]).read_text()) if files[1:] else predictions(results)
    print(six_programs_text(results, document))


if __name__ == "__main__":
    main(sys.argv[1:] or _FILES)
