"""What documents say of studies: three trainings, seven ways, beside what they measured.

    python -m research.studies_reproduced

writes ``benchmarks/studies/reproduced.json``, from which the block is rendered.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.api import Advisor
from advisor.validate.reproduce import hosts_of_studies, reproduced
from advisor.validate.reproduction_text import reproduction_document
from advisor.validate.score_tables import markdown
from advisor.validate.study_claims import study_claims
from advisor.validate.study_questions import GPU, StudyQuestion, StudyQuestions
from advisor.workload.store import NO_CALIBRATION
from advisor.workload.writing import write_whole
from research.files import BENCHMARKS, rounded

FILE = BENCHMARKS / "studies" / "reproduced.json"

# The small trainings of the first study, by their words in the file of claims.
_SMALL = {"s": "ResNet-26, batch 32", "S": "ResNet-26, batch 128", "ES": "EfficientNetV2-S"}
_WAYS = (
    ("alone", 1, "serial"),
    *((f"{copies}, {words}", copies, sharing)
      for copies, slices in ((3, "2g.10gb"), (7, "1g.5gb"))
      for words, sharing in (
          ("time-sliced", "naive"), ("MPS", "mps"), (f"a {slices} each", "slices")
      )),
)  # fmt: skip
# What the study says of an epoch's time beside that of one alone: P054 to P057.
_FOUND = {
    ("s", 3): "1.05 to 1.12",
    ("s", 7): "1.6 to 1.8",
    ("S", 3): "1.5 to 2.6",
    ("ES", 3): "1.4 to 1.9",
}
_NO_FIGURE = "-"


def small_trainings(advisor: Advisor) -> list[dict[str, Any]]:
    """How many times as long as alone each small training takes, in each of the seven ways."""
    claims = study_claims()
    here = StudyQuestions(advisor, claims)
    rows = {name: each for each in claims.claims for name in each.ids}
    as_told = StudyQuestions(advisor, claims, host_slowdowns=hosts_of_studies(here, rows["P057"]))
    found = []
    for way, copies, sharing in _WAYS:
        asked = {
            word: StudyQuestion("slowdown", f"{copies} {word}", sharing, 1, None) for word in _SMALL
        }
        found.append({
            "way": way,
            "copies": copies,
            "time_sliced": sharing == "naive",
            "slowdown": {word: here.value(each) for word, each in asked.items()},
            "as_told": {word: as_told.value(each) for word, each in asked.items()},
        })  # fmt: skip
    return found


def studies_text(document: Mapping[str, Any] | None = None) -> str:
    """The block in Markdown.

    Args:
        document: As `write` writes it; None: the committed one.
    """
    found = json.loads(FILE.read_text()) if document is None else document
    headings = ["copies, way"]
    for name in _SMALL.values():
        headings += [name, "the study"]
    table = markdown(headings, [_row(each) for each in found["small"]])
    return f"{table}\n\n{_scores(found['scores'], found['slower_host'])}"


def studies_in_short(document: Mapping[str, Any] | None = None) -> str:
    """What README says: each way from the study's numbers of jobs alone, and how many rows agree.

    Args:
        document: As of `studies_text`.
    """
    found = json.loads(FILE.read_text()) if document is None else document
    rows = [
        [way["way"], *(f"{way['as_told'][word]:.2f}x ({_found(way, word)})" for word in _SMALL)]
        for way in found["small"]
    ]
    of_all, _, agree, _ = _totals(found["scores"])
    return (
        f"{markdown(['copies, way', *_SMALL.values()], rows)}\n\n"
        f"Of {of_all} checkable rows of three studies {agree} agree ({agree / of_all:.0%})."
    )


def _row(way: Mapping[str, Any]) -> list[str]:
    cells = [way["way"]]
    for word in _SMALL:
        predicted, as_told = way["slowdown"][word], way["as_told"][word]
        cells += [f"{as_told:.2f}x ({predicted:.2f}x)", _found(way, word)]
    return cells


def _found(way: Mapping[str, Any], word: str) -> str:
    if way["copies"] == 1:
        return "1x"
    said = None if way["time_sliced"] else _FOUND.get((word, way["copies"]))
    return _NO_FIGURE if said is None else f"{said}x"


def _scores(scores: Sequence[Mapping[str, Any]], slower_host: float) -> str:
    """How many rows agree, by kind and in all; but not of placement, which is no prediction."""
    counted = [each for each in scores if each["kind"] != "placement"]
    rows, agree, as_told, slower = _totals(scores)
    kinds = ", ".join(
        f"{each['kind']} {each['agree_as_told']} of {each['rows']}" for each in counted
    )
    return (
        f"Of {rows} rows of the studies {as_told} agree with what is predicted from their numbers "
        f"of jobs alone ({as_told / rows:.0%}), {agree} from the shipped profiles as they are "
        f"({agree / rows:.0%}) and {slower} on a host {slower_host:g} times as slow "
        f"({slower / rows:.0%}); asked for were 90 %. By kind, from numbers of jobs alone: {kinds}."
    )


def _totals(scores: Sequence[Mapping[str, Any]]) -> list[int]:
    """Rows, and those that agree: from the profiles, as told, on a slower host; no placement."""
    counted = [each for each in scores if each["kind"] != "placement"]
    keys = ("rows", "agree", "agree_as_told", "agree_on_slower_host")
    return [sum(each[key] for each in counted) for key in keys]


def write() -> None:
    """Predict all of it again, and write it."""
    advisor = Advisor(GPU, calibration=NO_CALIBRATION)
    scores = reproduction_document(reproduced(advisor))
    document = {name: scores[name] for name in ("gpu", "slower_host", "scores")}
    document["small"] = small_trainings(advisor)
    FILE.parent.mkdir(exist_ok=True)
    write_whole(FILE, json.dumps(rounded(document, ".4g"), indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    write()
