"""What choices give away: the model's, those of rules, and recommendations written beforehand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median_low
from typing import Any

from advisor.errors import counted
from advisor.learn.scores import RunComparison
from advisor.report.format import percent
from advisor.sharing import Mps, Naive, parse_sharing
from research.evaluate import Evaluation
from research.files import BENCHMARKS
from research.regret import Choices, Panel, choices
from research.score_tables import (
    CHOICE_HEADINGS,
    REGRET_HEADINGS,
    choice_rows,
    markdown,
    regret_rows,
)
from research.scoreboard import Scores
from research.steps import joined


@dataclass(frozen=True, slots=True)
class Followed:
    """One recommendation that was run.

    Attributes:
        predicted: Throughput that was predicted with it.
        measured: Throughput that it had.
        regret: Share of the best measured throughput of the set that following it gave away.
        by_rule: The same for always MPS, equal limits and always naive, if these were run.
        times: How often it was run; throughputs are means over these.
    """

    predicted: float
    measured: float
    regret: float
    by_rule: Mapping[str, float]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The recommendations of one model.

    Attributes:
        sets: Job sets for which it recommended a sharing.
        model_sha256: Its digest.
        followed: Those that were run.
    """

    sets: int
    model_sha256: str
    followed: tuple[Followed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Runs of job sets under several plans.

    Attributes:
        plans: Runs of several jobs.
        throughput_mape: Mean absolute error of their throughput.
        steps: Measured steps, one of each job in all runs, jobs alone included.
        inside: Those inside their 90 % intervals.
    """

    plans: int
    throughput_mape: float | None
    steps: int
    inside: int


def followed(document: Mapping[str, Any], sets: Sequence[Panel]) -> tuple[Followed, ...]:
    """Return what became of the recommendations in `document` that were run.

    Args:
        document: The content of a ``recommended.json``.
        sets: Job sets with what was measured of each way to run them.
    """
    wanted = {tuple(entry["jobs"]): entry for entry in document["sets"]}
    return tuple(
        Followed(
            entry["throughput"],
            option.measured,
            panel.regret_of(option.sharing),
            _regret_by_rule(panel),
            option.times,
        )
        for panel in sets
        if (entry := wanted.get(panel.names))
        for option in panel.options
        if option.sharing == parse_sharing(entry["sharing"])
    )


def _regret_by_rule(panel: Panel) -> dict[str, float]:
    ran = {option.sharing for option in panel.options}
    equal = Mps((float(round(100 / len(panel.names))),) * len(panel.names))
    rules = {"always MPS": Mps(), "equal limits": equal, "always naive": Naive()}
    return {name: panel.regret_of(rule) for name, rule in rules.items() if rule in ran}


def recommended(evaluation: Evaluation, folder: Path = BENCHMARKS) -> tuple[Recommended, ...]:
    """Return the recommendations for this GPU, in the panels of `folder`, that were run."""
    documents = [
        json.loads(file.read_text()) for file in sorted(folder.glob("panels*/recommended.json"))
    ]
    sets = choices(evaluation)
    return tuple(
        Recommended(sets=len(entry["sets"]), model_sha256=entry["model_sha256"], followed=ran)
        for entry in documents
        if entry["gpu"] == evaluation.chosen.gpu.key and (ran := followed(entry, sets))
    )


def advice_score(runs: Sequence[RunComparison]) -> Advice:
    """Summarise runs of advice, predicted and measured."""
    plans = [run for run in runs if len(run.jobs) > 1]
    errors = [abs(run.predicted_speedup / run.measured_speedup - 1) for run in plans]
    jobs = [job for run in runs for job in run.jobs]
    return Advice(
        plans=len(plans),
        throughput_mape=mean(errors) if errors else None,
        steps=len(jobs),
        inside=sum(job.inside for job in jobs),
    )


def advice_sentence(advice: Advice) -> str:
    """Return the error of the throughput, and how many steps lie inside their intervals."""
    if not advice.plans:
        return "No advice has been run yet."
    return (
        f"In {advice.plans} runs of job sets under several plans, the throughput had a mean error "
        f"of {percent(advice.throughput_mape)}. {advice.inside} of {advice.steps} measured steps "
        f"({percent(advice.inside / advice.steps)}) lie inside their 90 % intervals."
    )


def choices_section(scores: Scores) -> str:
    """Return the regret of every way to choose, on panels and on sets drawn in several modes."""
    kinds = {
        "run under several plans to choose from": scores.chosen,
        "drawn in several modes": scores.drawn,
    }
    parts = []
    for kind, judged in kinds.items():
        if judged.sets:
            parts += [
                f"Job sets {kind}: {judged.sets}.",
                markdown(CHOICE_HEADINGS, choice_rows(judged)),
                noise_sentence(judged),
            ]
    if not parts:
        return ""
    return joined(
        "## What choices give away",
        "Regret is the share of the best measured throughput that a choice gives away; choices "
        "are made from profiles as they were measured. This model chooses as `recommend` does: the "
        "least predicted cost, with a handicap for each way to share. `Worst beyond the noise` "
        "subtracts the difference of two runs of the same jobs. A sharing that was run several "
        "times counts with the mean; if a rule finds several equally good, the mean over them "
        "counts. Every job is predicted by a model that saw no run with its family, so none of the "
        "set's own. A rule without an answer for every set is compared with this model on the sets "
        "that it answers.",
        *parts,
    )


def choices_table(judged: Choices) -> str:
    """Return the regret of this model and of every rule, in Markdown."""
    return joined(
        f"{counted(judged.sets, 'job set')} ran in several ways. {noise_sentence(judged)}",
        markdown(REGRET_HEADINGS, regret_rows(judged.rules)),
    )


def noise_sentence(judged: Choices) -> str:
    """Return a sentence on how far two runs differ."""
    if judged.noise is None:
        return "No set ran twice, so the noise is not measured."
    return (
        f"Two runs of the same plan differ by {percent(judged.noise)} in throughput in the median."
    )


def recommended_section(models: Sequence[Recommended]) -> str:
    """Return a paragraph for each model; empty if no recommendation was run."""
    if not models:
        return ""
    paragraphs = [
        f"The SHA-256 of the model begins with `{model.model_sha256[:12]}`. It had seen runs with "
        f"the jobs' families, as a user's model has, but none of the sets. {_lost(model)} Its "
        "predicted throughput had a mean error of "
        f"{percent(mean(abs(run.predicted / run.measured - 1) for run in model.followed))}."
        for model in models
    ]
    return joined("## Recommendations written down beforehand", *paragraphs)


def recommended_summary(models: Sequence[Recommended]) -> str:
    """Return a sentence for each panel; empty without any."""
    return " ".join(map(_lost, models))


def _lost(model: Recommended) -> str:
    ran = model.followed
    lost = [run.regret for run in ran]
    times = counted(median_low([run.times for run in ran]), "time")
    rules = ", ".join(
        f"{name} {percent(mean(run.by_rule[name] for run in ran if name in run.by_rule))}"
        for name in ran[0].by_rule
    )
    return (
        f"A model recommended a plan for {counted(model.sets, 'drawn job set')} before any ran. We "
        f"ran {len(ran)} of these plans, {times} each. They gave away {percent(mean(lost))} of the "
        f"best measured throughput on average, and {percent(max(lost))} at worst ({rules} on "
        f"average). For {sum(share <= 0 for share in lost)} no other way was faster."
    )
