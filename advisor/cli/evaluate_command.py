"""``advisor evaluate``: how good predictions are."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.combinations import apart, given_in
from advisor.cli.options import AsJson, MeasuredOptions, grouped
from advisor.cli.output import progress, show_found


@grouped
def evaluate(
    context: typer.Context,
    measured: MeasuredOptions,
    predictions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Score these predictions instead, one run a line."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what was predicted there, one run a line."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how good predictions are for model families that the model has never seen."""
    from advisor.hardware.catalogue import gpu as known
    from advisor.measure.process.cores import allowed_cores
    from advisor.validate.entries import entries_text, score_entries
    from advisor.validate.evaluate import evaluate as evaluated
    from advisor.validate.score_tables import evaluation_table
    from advisor.validate.scoreboard import evaluation_document
    from advisor.workload.writing import writable, write_whole

    apart(given_in(context), "export", ("predictions",), "--export writes our own predictions.")
    if export:
        writable(export)  # before minutes of evaluating
    model, (alone, shipped, own) = known(measured.gpu), measured.read()
    # What others are scored on is the same everywhere, whatever was measured here.
    runs = shipped if predictions or export else shipped + own
    if predictions:
        evaluation = score_entries(predictions, alone, runs, model)
    else:
        with progress() as tell:
            evaluation = evaluated(
                alone, runs, model, len(allowed_cores()),
                tell=lambda done, total: tell(done, total, "families predicted without them"),
            )  # fmt: skip
    if export:
        write_whole(export, entries_text(evaluation))
    show_found(evaluation, as_json, evaluation_table, evaluation_document)
