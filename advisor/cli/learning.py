"""``advisor fit`` and ``advisor evaluate``: what runs teach, and how well."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.combinations import apart, given_in
from advisor.cli.options import DEFAULT_GPU, AsJson, GpuKey, Profiles
from advisor.cli.output import leave_out, show, show_json, show_text
from advisor.cli.progress import progress
from advisor.english import counted
from advisor.terminal import clean

if TYPE_CHECKING:
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run


def fit(
    gpu: GpuKey = DEFAULT_GPU,
    profiles: Profiles = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of models to write to; default: your own."),
    ] = None,
) -> None:
    """Fit the model of a GPU to every run on it, yours included."""
    from advisor.hardware.catalogue import gpu as known
    from advisor.measure.process.cores import allowed_cores
    from advisor.prediction.fit.fit_model import fit as fitted
    from advisor.prediction.fit.observation import shared_runs
    from advisor.prediction.fit.surrogate_fit import distilled
    from advisor.prediction.model_file import model_text
    from advisor.workload.data_folders import user_folder
    from advisor.workload.staleness import odd_ones
    from advisor.workload.writing import writable, write_whole

    path = (out or user_folder("models")) / f"{gpu}.json"
    writable(path)  # before a minute of fitting
    alone, shipped, own = _measured(gpu, profiles)
    with progress() as tell:
        tell(0, 2, f"fitting to {counted(len(shipped + own), 'run')}")
        model = fitted(alone, shipped + own, known(gpu))
        tell(1, 2, "teaching quick answers")
        model = distilled(model, list(alone.values()), known(gpu), processes=len(allowed_cores()))
        tell(2, 2, "fitted")
    write_whole(path, model_text(model))
    show_text(
        f"{clean(str(path))}: fitted to {counted(model.data.runs, 'run')} of "
        f"{counted(model.data.profiles, 'profile')}."
    )
    used = [len(shared_runs(alone, runs)) for runs in (shipped, own)]
    show_text(
        f"Used: {used[0]} of {counted(len(shipped), 'run')} that came with the profiles, "
        f"{used[1]} of {len(own)} of your own."
    )
    if odd := odd_ones([run.provenance for run in shipped + own]):
        show_text(f"Not all alike: {odd}.")


def evaluate(
    context: typer.Context,
    gpu: GpuKey = DEFAULT_GPU,
    profiles: Profiles = None,
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
    model, (alone, shipped, own) = known(gpu), _measured(gpu, profiles)
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
    if as_json:
        show_json(evaluation_document(evaluation))
    else:
        show(evaluation_table(evaluation))


def _measured(
    gpu: str, profiles: Path | None
) -> "tuple[dict[str, Profile], tuple[Run, ...], tuple[Run, ...]]":
    """Profiles by name, the shipped runs, and the user's own; runs need their profiles."""
    from advisor.workload.store import load_profiles, runs_by_owner, tenants_of

    shipped, own = runs_by_owner(gpu, profiles)
    return load_profiles(gpu, profiles, leave_out, tenants_of(shipped + own)), shipped, own
