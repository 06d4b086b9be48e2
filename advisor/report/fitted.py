"""The runs and profiles to which `advisor fit` fitted its model, as text and JSON."""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from advisor.errors import clean, counted
from advisor.learn.observations import MeasuredGpu, shared_runs
from advisor.prediction.model import Model
from advisor.report.forecast import SCHEMA
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
