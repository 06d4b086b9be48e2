"""Commands that learn from runs: ``advisor fit`` and ``evaluate``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from advisor.cli import options
from advisor.cli.options import folder_to_write
from advisor.cli.output import leave_out, progress, show_answer
from advisor.errors import InvalidInput, counted, require_extra, with_article
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.hardware.gpus import Gpu
    from advisor.learn.observations import MeasuredGpu
    from advisor.prediction.model import Model


def _read_measured(gpu: "Gpu", folder: Path | None) -> "MeasuredGpu":
    """Read profiles and runs on `gpu`; warn about invalid profiles."""
    from advisor.learn.observations import MeasuredGpu
    from advisor.workload.store import measured_profiles, runs_by_owner, tenants_of

    shipped, own = runs_by_owner(gpu.key, folder)
    profiles, refused = measured_profiles(gpu.key, folder, tenants_of(shipped + own))
    leave_out(*refused)
    return MeasuredGpu(gpu, profiles, shipped + own, own)


def fit(
    gpu: options.GpuKey = DEFAULT_GPU,
    profiles: options.Profiles = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            parser=folder_to_write,
            help="Write the model to this folder; default: your own.",
        ),
    ] = None,
    tune: Annotated[
        bool, Option("--tune", help="Search the constants of replay and regression too [10 min].")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit the model to all runs, yours included.

    One run on a GPU is enough. Without a run of yours, `fit` changes nothing: use --profiles or
    --out to fit to the shipped runs.
    """
    from advisor.files.reading import MODEL_FILE, user_folder
    from advisor.files.writing import writable, write_whole
    from advisor.hardware.gpus import gpu as find_gpu
    from advisor.hardware.gpus import known_gpus
    from advisor.prediction.model import model_text
    from advisor.report.lists import fit_of, fit_report
    from advisor.workload.store import profiled_gpus

    require_extra("`advisor fit`", "fit", "sklearn", *(["optuna"] if tune else []))
    if not (out or profiles or any(user_folder("profiles").glob("*/runs/*.jsonl"))):
        raise InvalidInput(
            "you have no runs yet, so the model stays as it is. Measure some where the GPU is: "
            "`advisor validate JOB...`. Add --out DIR to fit to the shipped runs alone."
        )
    card = find_gpu(gpu)
    path = (out or user_folder("models")) / MODEL_FILE
    writable(path)  # before a minute of fitting
    measured = _read_measured(card, profiles)
    if not measured.runs:
        raise InvalidInput(
            f"no run on {with_article(card.key)} yet, so the model stays as it is. Answers for "
            f"{card.key} are estimated, with wider intervals. Measure runs where such a GPU is: "
            f"`advisor validate JOB...`."
        )
    catalogue = known_gpus()  # which has no CPU
    keys = sorted((catalogue.keys() & profiled_gpus(profiles)) - {card.key})
    others = [_read_measured(catalogue[key], profiles) for key in keys]
    others = [other for other in others if other.runs]
    # In one order whichever GPU was named, so that the model is one and the same.
    model = _fit_with_progress(
        sorted([measured, *others], key=lambda one: one.gpu.key), profiles, search=tune
    )
    write_whole(path, model_text(model))
    show_answer(fit_of(path, model, measured, others), as_json, fit_report)


def _fit_with_progress(
    measured: "Sequence[MeasuredGpu]", profiles: Path | None, *, search: bool
) -> "Model":
    from advisor.hardware.machine import allowed_cores
    from advisor.learn.fit import Constants, tune, with_own_paces
    from advisor.learn.fit import fit as fit_model
    from advisor.learn.surrogate_fit import with_surrogate

    with progress() as advance:
        advance(0, 2, f"fitting to {counted(sum(len(one.runs) for one in measured), 'run')}")
        model = fit_model(measured, constants=tune(measured) if search else Constants())
        advance(1, 2, "fitting the surrogate model")
        lessons = {one.gpu: list(one.profiles.values()) for one in measured}
        model = with_surrogate(model, lessons, processes=len(allowed_cores()))
        advance(2, 2, "fitted")
    return with_own_paces(model, measured, profiles)


def evaluate(
    gpu: options.GpuKey = DEFAULT_GPU,
    profiles: options.Profiles = None,
    models: options.Models = None,
    predictions: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Score the predictions in this file, one run a line; default: advisor's own.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare predictions with your runs.

    `validate` and `campaign` measure runs.
    """
    from advisor.hardware.gpus import gpu as find_gpu
    from advisor.learn.scores import compare_predictions, scores_of
    from advisor.prediction.model import load_model
    from advisor.prediction.predictor import Predictor
    from advisor.report.lists import scores_report
    from advisor.run.validate import compared
    from advisor.workload.store import model_path

    card = find_gpu(gpu)
    measured = _read_measured(card, profiles)
    if predictions:
        comparisons = compare_predictions(predictions, measured.profiles, measured.runs)
        left_out = 0
    else:
        runs = measured.runs if profiles else measured.own
        usable = [run for run in runs if measured.profiles.keys() >= {*run.names}]
        predictor = Predictor(card, load_model(model_path(models)))
        comparisons = compared(usable, measured.profiles, predictor, card)
        left_out = len(runs) - len(comparisons)
    if not comparisons:
        raise InvalidInput(
            f"no run of yours on {with_article(card.key)} can be scored. Measure some where such a "
            "GPU is: `advisor validate JOB...`."
        )
    scores = scores_of(comparisons, card.key, left_out)
    show_answer(scores, as_json, scores_report)
