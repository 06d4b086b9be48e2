"""One data loader for jobs that read the same images, against one for each: measured on H200s.

``benchmarks/shared_loader.py`` measured the rows of ``benchmarks/shared-loader``.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, median

from advisor.workload.profile import Profile
from advisor.workload.store import read_profile
from benchmarks.shared_loader import predicted
from research.files import ROOT
from research.score_tables import markdown

_FOLDER = ROOT / "benchmarks" / "shared-loader"
_HOSTS = {
    "h200-first.json": "1",
    "h200-second.json": "2",
    "h200-third.json": "3",
    "h200-fourth.json": "4",
    "h200-fourth-resnet50.json": "4",
    "h200-fifth.json": "5",
}


@cache
def rows() -> tuple[dict[str, float], ...]:
    """Return what was measured, beside predictions from the profile that each host made."""
    lines = (_FOLDER / "rows.jsonl").read_text().splitlines()
    return tuple(row | _now(row) for row in map(json.loads, lines))


@cache
def _profile(name: str) -> Profile:
    return read_profile(Path(_FOLDER, name))


def _now(row: dict[str, float]) -> dict[str, float]:
    profile, jobs, cores = _profile(str(row["profile"])), int(row["jobs"]), int(row["cores"])
    now = predicted(profile, jobs, cores, profile.gpu, shared=bool(row["shared"]))
    inside = now["p05_s"] <= row["step_s"] <= now["p95_s"]
    return {"now_step_s": now["step_s"], "now_core_s": now["core_s"], "inside": inside}


def one_loader_text() -> str:
    """Return the table of all rows, errors, and how much faster one loader was."""
    by_cell: dict[tuple[str, int, int], dict[bool, dict[str, float]]] = {}
    for row in rows():
        cell = str(row["profile"]), int(row["cores"]), int(row["jobs"])
        by_cell.setdefault(cell, {})[bool(row["shared"])] = row
    table = []
    for (profile, cores, jobs), ways in by_cell.items():
        network = _profile(profile).workload.model.replace("_", r"\_")
        cells = (*_cells(ways.get(False)), *_cells(ways.get(True)))
        table.append((network, _HOSTS[profile], cores, jobs, *cells))
    head = ["network", "host", "cores", "jobs"]
    for way in ("a loader each", "one loader"):
        head += [f"{way}: ms a step, predicted", "measured", "core ms, predicted", "measured"]
    return "\n\n".join(
        [" ".join(_sentences(by_cell)), markdown(head, [[*map(str, row)] for row in sorted(table)])]
    )


def _cells(row: dict[str, float] | None) -> tuple[str, ...]:
    if row is None:
        return ("-",) * 4
    names = "now_step_s", "step_s", "now_core_s", "core_s"
    return tuple(f"{1e3 * row[name]:.0f}" for name in names)


def _sentences(
    by_cell: dict[tuple[str, int, int], dict[bool, dict[str, float]]],
) -> Iterator[str]:
    for shared, words in ((False, "With a loader each"), (True, "With one loader")):
        own = [row for row in rows() if row["shared"] is shared]
        step, cores = (_error(own, f"now_{name}", name) for name in ("step_s", "core_s"))
        before = _error(own, "predicted_step_s", "step_s")
        yield (
            f"{words} the mean error of {len(own)} cells is {step:.0%} of a step and {cores:.0%} "
            f"of core seconds, and {sum(bool(each['inside']) for each in own)} steps are in their "
            f"interval (beforehand the error of steps was {before:.0%})."
        )
    pairs = [(cell, ways) for cell, ways in by_cell.items() if len(ways) == 2 and cell[2] > 1]
    few = [_gain(ways, "step_s") for (_, cores, jobs), ways in pairs if cores < 3 * jobs]
    yield (
        f"With fewer than three cores a job one loader made steps {min(few):.1f} to "
        f"{max(few):.1f} times as fast, {median(few):.1f} in the median."
    )
    errors = [abs(_gain(ways, "step_s") / _gain(ways, "now_step_s") - 1) for _, ways in pairs]
    yield (
        f"How many times as fast is {fmean(errors):.0%} off in the mean of the {len(pairs)} cells "
        f"with both."
    )


def _gain(ways: dict[bool, dict[str, float]], step: str) -> float:
    return ways[False][step] / ways[True][step]


def _error(own: list[dict[str, float]], predicted: str, measured: str) -> float:
    return fmean(abs(row[measured] / row[predicted] - 1) for row in own)
