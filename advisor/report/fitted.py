"""The runs and profiles to which `advisor fit` fitted its model, and scores of predictions."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Group
from rich.text import Text

from advisor.errors import clean, counted
from advisor.learn.observations import MeasuredGpu, shared_runs
from advisor.learn.scores import Scores
from advisor.prediction.model import Model
from advisor.report.forecast import SCHEMA
from advisor.report.format import FittedTable, percent
from advisor.report.record_documents import FitDocument, UsedRuns
from advisor.workload.staleness import odd_ones


def fit_document(
    file: Path, model: Model, measured: MeasuredGpu, others: Sequence[MeasuredGpu]
) -> FitDocument:
    """Return what ``advisor fit --json`` prints of a fit to runs on a GPU, and on `others`."""

    def used(on: MeasuredGpu) -> UsedRuns:
        every, own = (len(shared_runs(on.profiles, runs, on.gpu)) for runs in (on.runs, on.own))
        return {"runs": len(on.runs), "used": every, "own": len(on.own), "own_used": own}

    return {
        "schema": SCHEMA,
        "gpu": measured.gpu.key,
        "file": str(file),
        "fitted_to": {
            key: {"runs": sum(data.runs.values()), "profiles": data.profiles}
            for key, data in model.data.items()
        },
        "used": {each.gpu.key: used(each) for each in (measured, *others)},
        "runs_differ": odd_ones([run.provenance for run in measured.runs]),
        "own_paces_of": sorted(model.own_paces.get(measured.gpu.key, ())),
    }


def fit_report(document: FitDocument) -> Text:
    """Return the document of a fit as sentences."""
    lines = [
        f"{clean(document['file'])}: fitted to {counted(data['runs'], 'run')} of "
        f"{counted(data['profiles'], 'profile')} on {key}."
        for key, data in document["fitted_to"].items()
    ]
    for key, runs in document["used"].items():
        lines.append(
            f"Used on {key}: {runs['used'] - runs['own_used']} of "
            f"{counted(runs['runs'] - runs['own'], 'run')} that came with the profiles, "
            f"{runs['own_used']} of {runs['own']} of your own."
        )
    if document["runs_differ"]:
        lines.append(f"The runs differ: {document['runs_differ']}.")
    if paces := document["own_paces_of"]:
        lines.append(f"Predictions now follow the pace of your own runs of {', '.join(paces)}.")
    return Text("\n".join(lines))


def scores_report(scores: Scores) -> Group:
    """Return what ``advisor evaluate`` prints."""
    table = FittedTable(
        title=f"{scores.gpu}: errors of predicted step times", box=SIMPLE, pad_edge=False
    )
    for heading in ("sharing", "runs", "jobs", "mean", "median", "P90", "in 90 % interval"):
        table.add_column(heading, justify="left" if heading == "sharing" else "right")
    for row in scores.modes:
        shares = map(percent, (row.mape, row.median, row.p90, row.coverage90))
        table.add_row(row.mode, str(row.runs), str(row.n), *shares)
    notes = []
    if scores.left_out:
        notes.append(
            f"{counted(scores.left_out, 'run')} not scored: a tenant ended early or has no profile."
        )
    if choices := scores.choices:
        always = "" if choices.always_mps is None else f" Always MPS: {percent(choices.always_mps)}"
        notes.append(
            f"Job sets that ran in several ways: {choices.sets}. Choosing as `recommend` does lost "
            f"{percent(choices.mean)} of the best measured throughput on average, "
            f"{percent(choices.worst)} at worst.{always and always + '.'}"
        )
    return Group(table, *notes)
