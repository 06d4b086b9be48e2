"""The results of recommendations that were written before their job sets were run.

``benchmarks/recommend_panels.py`` writes them, with the digest of the model that made them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from advisor.sharing import parse_sharing
from advisor.validate.evaluate import Evaluation
from advisor.validate.panels import Panel
from advisor.validate.regret import choices
from advisor.validate.score_tables import percent

_FILE = Path(__file__).resolve().parents[1] / "benchmarks" / "panels" / "recommended.json"


@dataclass(frozen=True, slots=True)
class Followed:
    """One recommendation that was run.

    Attributes:
        said: Throughput that was predicted with it.
        measured: Throughput that it had.
        regret: Share of the best measured throughput of the set that following it gave away.
    """

    said: float
    measured: float
    regret: float


def followed(document: Mapping[str, Any], sets: Sequence[Panel]) -> tuple[Followed, ...]:
    """What became of the recommendations in `document`, of those that were run.

    Args:
        document: As ``benchmarks/recommend_panels.py`` writes it.
        sets: Job sets with what was measured of each way to run them.
    """
    wanted = {tuple(each["jobs"]): each for each in document["sets"]}
    return tuple(
        Followed(each["throughput"], option.measured, panel.regret_of(option.sharing))
        for panel in sets
        if (each := wanted.get(panel.names))
        for option in panel.options
        if option.sharing == parse_sharing(each["sharing"])
    )


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


def recommended(evaluation: Evaluation, file: Path = _FILE) -> Recommended | None:
    """None if `file` has no recommendations for this GPU, or none of them was run."""
    document = json.loads(file.read_text()) if file.is_file() else {"gpu": None, "sets": []}
    ran = followed(document, choices(evaluation))
    if document["gpu"] != evaluation.gpu or not ran:
        return None
    return Recommended(
        sets=len(document["sets"]), model_sha256=document["model_sha256"], followed=ran
    )


def section(found: Recommended | None) -> str:
    """Of profiles/REPORT.md; empty if nothing was recommended, or nothing of it run."""
    if found is None:
        return ""
    ran = found.followed
    lost = [each.regret for each in ran]
    off = mean(abs(each.said / each.measured - 1) for each in ran)
    return "\n\n".join([
        "## Recommendations written down beforehand",
        f"For {found.sets} drawn job sets the model with SHA-256 "
        f"`{found.model_sha256[:12]}` said what is best before any of them was run. It had "
        "seen runs with the jobs' families, as a user's model has, but none of the sets. "
        f"{len(ran)} of its recommendations were run: they give away {percent(mean(lost))} of the "
        f"best measured throughput in the mean, {percent(max(lost))} at worst; for "
        f"{sum(each <= 0 for each in lost)} nothing better was measured. The throughput it said "
        f"was off by {percent(off)} in the mean.",
    ])  # fmt: skip
