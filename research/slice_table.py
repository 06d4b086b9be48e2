"""What docs/other-gpus.md says of MIG slices, steps and memory, from committed scores."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.validate.score_tables import markdown, percent
from research.files import BENCHMARKS
from research.sections import joined

_PARTS = ("1g", "2g", "3g", "4g")
_HEADINGS = ("what is known of a job", "steps", "MAPE", "95 % of it",
             *_PARTS, "in 90 % interval", *(f"of {part}" for part in _PARTS))  # fmt: skip
_SLICES = "slices of an A100"
_TRANSLATED = "slices of an A100, translated"

# How the answer is come to, in words for readers.
_BY: Mapping[str, str] = {
    "memory utilisation": "nvidia-smi's memory utilisation",
    "power": "power, without that",
    "GPU utilisation": "its GPU utilisation alone",
    "two MPS limits": "steps under two MPS limits",
    "trees": "regression trees on the same numbers",
    "as if alone": "nothing: as if on the whole GPU",
}

Scores = Sequence[Mapping[str, Any]]


def slice_tables() -> str:
    """The table of steps in Markdown and a paragraph on memory, from the committed scores."""
    bare = _committed("slices", "accuracy.json")["scores"]
    traced = _committed("slices", "traces.json")["scores"]
    rows = [*_rows_of_bare(bare), *_rows_of_traces(traced)]
    return joined(markdown(_HEADINGS, rows), misfits_text(_committed("oom-alone", "score.json")))


def _committed(study: str, name: str) -> Any:
    return json.loads((BENCHMARKS / study / name).read_text())


def _rows_of_bare(scores: Scores) -> list[tuple[str, ...]]:
    of_slices = {each["by"]: each for each in scores if each["data"] == _SLICES}
    return [_row(words, of_slices[by]) for by, words in _BY.items()]


def _rows_of_traces(scores: Scores) -> list[tuple[str, ...]]:
    return [
        _row("kernel trace of an H100, translated: ViT-B, ResNet-50", each)
        for each in scores
        if each["check"] == _TRANSLATED
    ]


def _row(words: str, score: Mapping[str, Any]) -> tuple[str, ...]:
    off, inside = score.get("of_part") or {}, score.get("inside_of_part") or {}
    within = "-" if "low" not in score else f"{percent(score['low'])} to {percent(score['high'])}"
    return (
        words, str(score["steps"]), percent(score["mape"]), within,
        *(percent(off.get(part)) for part in _PARTS), percent(score.get("inside")),
        *(percent(inside.get(part)) for part in _PARTS),
    )  # fmt: skip


def misfits_text(scores: Scores) -> str:
    """How often "does not fit" is said, and how often that is so, of memory like that of slices."""
    sizes, close = (
        _counts(scores, f"alone on slices {which}")
        for which in ("of every size", "within 15 % of the need")
    )
    tried = _counts(scores, "alone on a smaller card, run")
    return (
        "Whether a job fits, of each process that was measured and the memory of every MIG slice "
        f"there is: of {sizes['misfits']:,} that do not fit {sizes['said']:,} are said not to, of "
        f"{sizes['fits']:,} that do {sizes['wrongly']}; of those that need within 15 % of what the "
        f"slice has, {close['said']:,} of {close['misfits']:,} and {close['wrongly']} of "
        f"{close['fits']:,}. Where a job fits only if its allocator gives up enough of its cache, "
        f"it is mostly said not to: of {tried['misfits'] + tried['fits']} jobs tried so close to "
        "the edge, on a GPU made to look like a smaller card, "
        f"{tried['said']} of {tried['misfits']} that ran out and {tried['wrongly']} of "
        f"{tried['fits']} that did not."
    )


def _counts(scores: Scores, what: str) -> dict[str, int]:
    """Of all GPUs together: what does and does not fit, and what of each is said not to."""
    of_it = [each for each in scores if each["what"] == what]
    shares = {"said": ("recall", "misfits"), "wrongly": ("false_alarms", "fits")}
    found = {name: sum(int(each[name]) for each in of_it) for name in ("misfits", "fits")}
    for name, (share, among) in shares.items():
        found[name] = sum(round((each[share] or 0.0) * each[among]) for each in of_it)
    return found
