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
    from advisor.hardware.gpus import Gpu
    from advisor.learn.evaluate import Evaluation
    from advisor.learn.observations import MeasuredGpu
    from advisor.prediction.model import Model
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run


@dataclass(frozen=True, slots=True)
class MeasuredOptions:
    """Options of whose measurements a model is fitted to or scored on."""

    gpu: GpuKey = DEFAULT_GPU
    profiles: Profiles = None

    def read(self) -> "tuple[dict[str, Profile], tuple[Run, ...], tuple[Run, ...]]":
        """Profiles by name, the shipped runs, and the user's own runs; runs need their profiles.

        Files that hold no profile are left out with a warning.
        """
        return _measured(self.gpu, self.profiles)

    def others(self) -> "tuple[MeasuredGpu, ...]":
        """Measurements on every other known GPU that has runs; CPUs do not count."""
        from advisor.hardware.gpus import known_gpus
        from advisor.learn.observations import MeasuredGpu
        from advisor.workload.store import profiled_gpus

        found, known = [], known_gpus()
        for key in sorted((known.keys() & profiled_gpus(self.profiles)) - {self.gpu}):
            profiles, shipped, own = _measured(key, self.profiles)
            if shipped + own:
                found.append(MeasuredGpu(known[key], profiles, shipped + own, own))
        return tuple(found)


def _measured(
    gpu: str, folder: Path | None
) -> "tuple[dict[str, Profile], tuple[Run, ...], tuple[Run, ...]]":
    from advisor.workload.store import measured_profiles, runs_by_owner, tenants_of

    shipped, own = runs_by_owner(gpu, folder)
    found, refused = measured_profiles(gpu, folder, tenants_of(shipped + own))
    leave_out(*refused)
    return found, shipped, own


_Models = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=to_write, help="Write the model to this folder; default: your own."
    ),
]


@grouped
def fit(measured: MeasuredOptions, out: _Models = None) -> None:
    """Fit the model to every run, yours included.

    One run on a GPU is enough. Without a run of yours, `fit` changes nothing: use --profiles or
    --out to fit to the shipped runs.
    """
    from advisor.hardware.gpus import gpu as known
    from advisor.learn.observations import MeasuredGpu, shared_runs
    from advisor.prediction.model import model_text
    from advisor.workload.reading import MODEL_FILE, user_folder
    from advisor.workload.writing import writable, write_whole

    if out is None and measured.profiles is None and not _own_runs():
        raise InvalidInput(_NOTHING_OF_YOURS)
    card = known(measured.gpu)
    path = (out or user_folder("models")) / MODEL_FILE
    writable(path)  # before a minute of fitting
    alone, shipped, own = measured.read()
    if not shipped + own:
        raise InvalidInput(_nothing_to_learn(card.key))
    others = measured.others()
    everyone = (MeasuredGpu(card, alone, shipped + own, own), *others)
    # In one order whichever GPU was asked about, so that the model is one and the same.
    model = _fitted(sorted(everyone, key=lambda each: each.gpu.key))
    write_whole(path, model_text(model))
    for key, data in model.data.items():
        show_text(
            f"{clean(str(path))}: fitted to {counted(sum(data.runs.values()), 'run')} of "
            f"{counted(data.profiles, 'profile')} on {key}."
        )
    _show_runs(card, (alone, shipped, own))
    if paced := model.own_paces.get(card.key):
        show_text(
            f"Predictions now follow the pace of your own runs of {', '.join(sorted(paced))}."
        )
    for each in others:
        used = len(shared_runs(each.profiles, each.runs, each.gpu))
        show_text(f"Used on {each.gpu.key}: {used} of {counted(len(each.runs), 'run')}.")


def _own_runs() -> bool:
    """Whether the user has run anything, on any GPU."""
    from advisor.workload.reading import user_folder

    return any(user_folder("profiles").glob("*/runs/*.jsonl"))


_NOTHING_OF_YOURS = (
    "you have no runs yet, so the model stays as it is. Measure some where the GPU is: `advisor "
    "validate JOB...`. Add --out DIR to fit to the shipped runs alone."
)


def _fitted(everyone: "Sequence[MeasuredGpu]") -> "Model":
    from advisor.hardware.host_cores import allowed_cores
    from advisor.learn.fit import fit as fitted
    from advisor.learn.own_runs import with_own_paces
    from advisor.learn.surrogate_fit import with_surrogate

    runs = sum(len(each.runs) for each in everyone)
    with progress() as advance:
        advance(0, 2, f"fitting to {counted(runs, 'run')}")
        model = fitted(everyone)
        advance(1, 2, "fitting the surrogate model")
        taught = {each.gpu: list(each.profiles.values()) for each in everyone}
        model = with_surrogate(model, taught, processes=len(allowed_cores()))
        advance(2, 2, "fitted")
    return with_own_paces(model, everyone)


def _nothing_to_learn(gpu: str) -> str:
    return (
        f"no run on {with_article(gpu)} yet, so the model stays as it is. Answers for {gpu} are "
        f"estimated, with wider intervals. Measure runs where such a GPU is: `advisor validate "
        f"JOB...`."
    )


def _show_runs(
    card: "Gpu", read: "tuple[dict[str, Profile], Sequence[Run], Sequence[Run]]"
) -> None:
    """Print how many of the runs on `card` were used, and whether their software differs."""
    from advisor.learn.observations import shared_runs
    from advisor.workload.calibration import odd_ones

    alone, shipped, own = read
    used = [len(shared_runs(alone, runs, card)) for runs in (shipped, own)]
    show_text(
        f"Used on {card.key}: {used[0]} of {counted(len(shipped), 'run')} that came with the "
        f"profiles, {used[1]} of {len(own)} of your own."
    )
    if odd := odd_ones([run.provenance for run in (*shipped, *own)]):
        show_text(f"The runs differ: {odd}.")


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
        metavar="FILE", parser=to_write, help="Write the predictions to this file, one run a line."
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
    from advisor.learn.evaluate import entries_text
    from advisor.report.scores import evaluation_document, evaluation_table
    from advisor.workload.writing import writable, write_whole

    apart(
        given_in(context), "export", ("predictions",), "--export writes advisor's own predictions."
    )
    if export:
        writable(export)  # before minutes of evaluating
    evaluation = _evaluation(measured, predictions, only_shipped=export is not None)
    if export:
        write_whole(export, entries_text(evaluation))
    show_answer(evaluation, as_json, evaluation_table, evaluation_document)


def _evaluation(
    measured: MeasuredOptions, predictions: Path | None, *, only_shipped: bool
) -> "Evaluation":
    """Scores of the predictions in a file, or of this version of the model."""
    from advisor.hardware.gpus import gpu as known
    from advisor.hardware.host_cores import allowed_cores
    from advisor.learn.evaluate import evaluate as evaluated
    from advisor.learn.evaluate import score_entries

    card, (alone, shipped, own) = known(measured.gpu), measured.read()
    if predictions:
        return score_entries(predictions, alone, shipped, card)
    runs = shipped if only_shipped else shipped + own
    with progress() as advance:
        return evaluated(
            alone, runs, card, len(allowed_cores()),
            tell=lambda done, total: advance(done, total, "families predicted without them"),
        )  # fmt: skip
