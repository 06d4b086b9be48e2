"""The results of recommendations that were written before their job sets were run.

``benchmarks/recommend_panels.py`` writes them, with the digest of the model that made them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median_low
from typing import Any

from advisor.english import counted
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.validate.evaluate import Evaluation
from advisor.validate.panels import Panel
from advisor.validate.regret import choices
from advisor.validate.score_tables import percent
from research.files import BENCHMARKS


@dataclass(frozen=True, slots=True)
class Followed:
    """One recommendation that was run.

    Attributes:
        said: Throughput that was predicted with it.
        measured: Throughput that it had.
        regret: Share of the best measured throughput of the set that following it gave away.
        by_rule: The same for always MPS, equal limits and always naive, where these were run.
        times: How often it was run; throughputs are means over these.
    """

    said: float
    measured: float
    regret: float
    by_rule: Mapping[str, float]
    times: int


def followed(document: Mapping[str, Any], sets: Sequence[Panel]) -> tuple[Followed, ...]:
    """What became of the recommendations in `document`, of those that were run.

    Args:
        document: As ``benchmarks/recommend_panels.py`` writes it.
        sets: Job sets with what was measured of each way to run them.
    """
    wanted = {tuple(each["jobs"]): each for each in document["sets"]}
    return tuple(
        Followed(
            each["throughput"], option.measured, panel.regret_of(option.sharing),
            _by_rule(panel), option.times,
        )
        for panel in sets
        if (each := wanted.get(panel.names))
        for option in panel.options
        if option.sharing == parse_sharing(each["sharing"])
    )  # fmt: skip


def _by_rule(panel: Panel) -> dict[str, float]:
    ran = {option.sharing for option in panel.options}
    equal = Mps((float(round(100 / len(panel.names))),) * len(panel.names))
    rules = {"always MPS": Mps(), "equal limits": equal, "always naive": Naive()}
    return {name: panel.regret_of(each) for name, each in rules.items() if each in ran}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What became of all recommendations of one model.

    Attributes:
        sets: Job sets for which it said what is best.
        model_sha256: Its digest.
        followed: Those that were run.
    """

    sets: int
    model_sha256: str
    followed: tuple[Followed, ...]


def recommended(evaluation: Evaluation, folder: Path = BENCHMARKS) -> tuple[Recommended, ...]:
    """Of each of the panels in `folder` that has recommendations for this GPU which were run."""
    files = sorted(folder.glob("panels*/recommended.json"))
    documents = [json.loads(file.read_text()) for file in files]
    sets = choices(evaluation)
    return tuple(
        Recommended(sets=len(each["sets"]), model_sha256=each["model_sha256"], followed=ran)
        for each in documents
        if each["gpu"] == evaluation.gpu and (ran := followed(each, sets))
    )


def section(found: Sequence[Recommended]) -> str:
    """Of profiles/REPORT.md; empty if nothing was recommended, or nothing of it run."""
    if not found:
        return ""
    return "\n\n".join(["## Recommendations written down beforehand", *map(_said, found)])


def summary(found: Sequence[Recommended]) -> str:
    """A sentence for each panel; empty without any."""
    return " ".join(map(_lost, found))


def _said(found: Recommended) -> str:
    off = mean(abs(each.said / each.measured - 1) for each in found.followed)
    return (
        f"The model with SHA-256 `{found.model_sha256[:12]}` said what is best before any of the "
        "sets was run. It had seen runs with the jobs' families, as a user's model has, but none "
        f"of the sets. {_lost(found)} The throughput it said was off by {percent(off)} in the mean."
    )


def _lost(found: Recommended) -> str:
    ran = found.followed
    lost = [each.regret for each in ran]
    times = counted(median_low([each.times for each in ran]), "time")
    rules = {
        name: mean(each.by_rule[name] for each in ran if name in each.by_rule)
        for name in ran[0].by_rule
    }
    others = ", ".join(f"{name} {percent(each)}" for name, each in rules.items())
    return (
        f"Of {found.sets} drawn job sets, {len(ran)} recommendations written down beforehand were "
        f"run, {times} each: they gave away {percent(mean(lost))} of the best measured throughput "
        f"in the mean, {percent(max(lost))} at worst ({others} in the mean); for "
        f"{sum(each <= 0 for each in lost)} nothing better was measured."
    )
