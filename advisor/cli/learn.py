"""``advisor fit`` and ``evaluate``: fit models to runs, and measure how good."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import AsJson, GpuKey, Profiles, apart, given_in, grouped, to_write
from advisor.cli.output import leave_out, progress, show_answer, show_text
from advisor.errors import InvalidInput, clean, counted, with_article
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.learn.observations import MeasuredGpu
    from advisor.prediction.model import Model
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run


@dataclass(frozen=True, slots=True)
class MeasuredOptions:
    """Options of whose measurements a model is fitted to or scored on."""

    gpu: GpuKey = DEFAULT_GPU
    profiles: Profiles = None


def _read_measured(
    gpu: str, folder: Path | None
) -> "tuple[dict[str, Profile], tuple[Run, ...], tuple[Run, ...]]":
    """Read profiles by name, shipped runs and the user's own runs; warn about invalid profiles."""
    from advisor.workload.store import measured_profiles, runs_by_owner, tenants_of

    shipped, own = runs_by_owner(gpu, folder)
    profiles, refused = measured_profiles(gpu, folder, tenants_of(shipped + own))
    leave_out(*refused)
    return profiles, shipped, own


_Models = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=to_write, help="Write the model to this folder; default: your own."
    ),
]


@grouped
def fit(measured: MeasuredOptions, out: _Models = None) -> None:
    """Fit the model to all runs, yours included.

    One run on a GPU is enough. Without a run of yours, `fit` changes nothing: use --profiles or
    --out to fit to the shipped runs.
    """
    from advisor.hardware.gpus import gpu, known_gpus
    from advisor.learn.observations import MeasuredGpu, shared_runs
    from advisor.prediction.model import model_text
    from advisor.workload.calibration import odd_ones
    from advisor.workload.reading import MODEL_FILE, user_folder
    from advisor.workload.store import profiled_gpus
    from advisor.workload.writing import writable, write_whole

    folder = measured.profiles
    if not (out or folder or any(user_folder("profiles").glob("*/runs/*.jsonl"))):
        raise InvalidInput(
            "you have no runs yet, so the model stays as it is. Measure some where the GPU is: "
            "`advisor validate JOB...`. Add --out DIR to fit to the shipped runs alone."
        )
    card = gpu(measured.gpu)
    path = (out or user_folder("models")) / MODEL_FILE
    writable(path)  # before a minute of fitting
    profiles, shipped, own = _read_measured(card.key, folder)
    if not shipped + own:
        raise InvalidInput(
            f"no run on {with_article(card.key)} yet, so the model stays as it is. Answers for "
            f"{card.key} are estimated, with wider intervals. Measure runs where such a GPU is: "
            f"`advisor validate JOB...`."
        )
    others = []
    catalogue = known_gpus()  # which has no CPU
    for key in sorted((catalogue.keys() & profiled_gpus(folder)) - {card.key}):
        read = _read_measured(key, folder)
        if runs := read[1] + read[2]:
            others.append(MeasuredGpu(catalogue[key], read[0], runs, read[2]))
    # In one order whichever GPU was named, so that the model is one and the same.
    all_gpus = [MeasuredGpu(card, profiles, shipped + own, own), *others]
    model = _fit_with_progress(sorted(all_gpus, key=lambda one: one.gpu.key))
    write_whole(path, model_text(model))
    for key, data in model.data.items():
        show_text(
            f"{clean(str(path))}: fitted to {counted(sum(data.runs.values()), 'run')} of "
            f"{counted(data.profiles, 'profile')} on {key}."
        )
    used = [len(shared_runs(profiles, runs, card)) for runs in (shipped, own)]
    show_text(
        f"Used on {card.key}: {used[0]} of {counted(len(shipped), 'run')} that came with the "
        f"profiles, {used[1]} of {len(own)} of your own."
    )
    if odd := odd_ones([run.provenance for run in (*shipped, *own)]):
        show_text(f"The runs differ: {odd}.")
    if paced := model.own_paces.get(card.key):
        show_text(
            f"Predictions now follow the pace of your own runs of {', '.join(sorted(paced))}."
        )
    for other in others:
        count = len(shared_runs(other.profiles, other.runs, other.gpu))
        show_text(f"Used on {other.gpu.key}: {count} of {counted(len(other.runs), 'run')}.")


def _fit_with_progress(measured: "Sequence[MeasuredGpu]") -> "Model":
    from advisor.hardware.machine import allowed_cores
    from advisor.learn.fit import fit as fit_model
    from advisor.learn.fit import with_own_paces
    from advisor.learn.surrogate_fit import with_surrogate

    runs = sum(len(one.runs) for one in measured)
    with progress() as advance:
        advance(0, 2, f"fitting to {counted(runs, 'run')}")
        model = fit_model(measured)
        advance(1, 2, "fitting the surrogate model")
        lessons = {one.gpu: list(one.profiles.values()) for one in measured}
        model = with_surrogate(model, lessons, processes=len(allowed_cores()))
        advance(2, 2, "fitted")
    return with_own_paces(model, measured)


_Predictions = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Score the predictions in this file, one run a line; default: advisor's own.",
    ),
]
_Export = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=to_write,
        help="Write the predictions to this file, one run a line.",
    ),
]


@grouped
def evaluate(
    context: typer.Context,
    measured: MeasuredOptions,
    predictions: _Predictions = None,
    export: _Export = None,
    as_json: AsJson = False,
) -> None:
    """Score predictions for model families left out of the fit."""
    from advisor.hardware.gpus import gpu
    from advisor.hardware.machine import allowed_cores
    from advisor.learn.evaluate import entries_text, score_entries
    from advisor.learn.evaluate import evaluate as evaluate_model
    from advisor.report.scores import evaluation_document, evaluation_table
    from advisor.workload.writing import writable, write_whole

    apart(
        given_in(context), "export", ("predictions",), "--export writes advisor's own predictions."
    )
    if export:
        writable(export)  # before minutes of evaluating
    card = gpu(measured.gpu)
    profiles, shipped, own = _read_measured(card.key, measured.profiles)
    if predictions:
        evaluation = score_entries(predictions, profiles, shipped, card)
    else:
        runs = shipped if export else shipped + own
        with progress() as advance:
            evaluation = evaluate_model(
                profiles, runs, card, len(allowed_cores()),
                tell=lambda done, total: advance(done, total, "families predicted without them"),
            )  # fmt: skip
    if export:
        write_whole(export, entries_text(evaluation))
    show_answer(evaluation, as_json, evaluation_table, evaluation_document)
