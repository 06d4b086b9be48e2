"""Commands that measure and learn from runs; the first four pass their words on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

from typer import Context, Exit, Option

from advisor.cli import options
from advisor.cli.options import (
    advisor_for,
    chosen_jobs,
    exclude,
    folder_to_write,
    mlflow_log,
    on_checked_host,
    passed_options,
    to_write,
)
from advisor.cli.output import aside, leave_out, progress, show_answer, show_json, show_text
from advisor.errors import (
    GpuUnavailable,
    InvalidInput,
    counted,
    require_extra,
    with_article,
)
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.hardware.gpus import Gpu
    from advisor.learn.observations import MeasuredGpu
    from advisor.prediction.model import Model
    from advisor.workload.run import Run

_WITHOUT_GPU = (
    "Without a GPU, describe the job by numbers of its log and nvidia-smi: `advisor profile "
    "--from-numbers --help`. Or name a similar job with a profile: `advisor profiles`."
)
_UNCALIBRATED = (
    "Advice needs no calibration: without one, it uses the constants of the fitted model."
)

_Undo = Annotated[
    bool,
    Option(
        "--undo",
        help="First undo what killed scripts and measurements left.",
    ),
]
_RunsFile = Annotated[
    Path | None,
    Option(
        "--runs",
        metavar="FILE",
        help="Compare the runs in this file; run none.",
    ),
]
_Ray = Annotated[
    str | None,
    Option(
        metavar="ADDRESS",
        help="Run the plans at once on free GPUs of this Ray cluster, e.g. auto, whose nodes have "
        "advisor installed.",
    ),
]
_DryRun = Annotated[
    bool,
    Option(
        "--dry-run",
        help="Print each process with its environment; run none.",
    ),
]
_RunsFolder = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        parser=folder_to_write,
        help="Add the runs to this folder of profiles; default: your own.",
    ),
]
_Tune = Annotated[
    bool, Option("--tune", help="Search the constants of replay and regression too [10 min].")
]
_ModelFolder = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        parser=folder_to_write,
        help="Write the model to this folder; default: your own.",
    ),
]
_Predictions = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Score the predictions in this file, one run a line; default: advisor's own.",
    ),
]
_PredictionsOut = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        parser=to_write,
        help="Write the predictions to this file, one run a line.",
    ),
]


def profile(context: Context) -> None:
    """Measure workloads, or your own script, alone."""
    from advisor.measure.process import supervise

    words = list(context.args)
    end = words.index("--") if "--" in words else len(words)  # the rest is a script's
    ours, uri = _without(words[:end], "--mlflow")
    as_json, ours = "--json" in ours, [word for word in ours if word != "--json"]
    log = mlflow_log(uri)
    began_s = time()
    entry = "profile_command:run_profile"
    if "--from-numbers" in ours:
        entry = "profile_command:run_from_numbers"
    elif any(word.partition("=")[0] == "--from-history" for word in ours):
        entry = "history_command:run_from_history"
    code = supervise(f"advisor.measure.{entry}", [*ours, *words[end:]])
    if log is not None or as_json:
        from advisor.report.lists import written_profiles_document
        from advisor.workload.store import read_profile

        paths = _written_since(began_s, _without(ours, "--out")[1])
        profiles = {str(path): read_profile(path) for path in paths}
        if log is not None:
            for each in profiles.values():
                log.profile(each)
        if as_json:
            show_json(written_profiles_document(profiles))
    if code == GpuUnavailable.exit_code:
        aside(_WITHOUT_GPU)
    raise Exit(code)


def _without(words: list[str], option: str) -> tuple[list[str], str | None]:
    """`words` without `option` and its value, and the value; None without the option."""
    for at, word in enumerate(words):
        if word == option:
            if at + 1 == len(words):
                raise InvalidInput(f"{option} needs a value after it.")
            return words[:at] + words[at + 2 :], words[at + 1]
        if word.startswith(f"{option}="):
            return words[:at] + words[at + 1 :], word.partition("=")[2]
    return words, None


def _written_since(began_s: float, out: str | None) -> list[Path]:
    from advisor.workload.reading import profile_files, user_folder

    folder = user_folder("profiles") if out is None else Path(out)
    places = [folder, *filter(Path.is_dir, folder.glob("*"))]
    files = (path for place in places for path in profile_files(place))
    # Time stamps of files may lag behind the clock.
    return sorted(path for path in files if path.stat().st_mtime > began_s - 0.1)


def campaign(context: Context) -> None:
    """Measure a plan of many mixes on one or more GPUs."""
    from advisor.measure.process import supervise

    raise Exit(supervise("advisor.measure.campaign:run_campaign", context.args))


def runs(context: Context) -> None:
    """Measure the plans in a file of `recommend --json`."""
    from advisor.measure.process import supervise

    raise Exit(supervise("advisor.measure.shared_run:run_list", context.args))


def calibrate(context: Context) -> None:
    """Measure what advice needs about this machine."""
    from advisor.measure.process import supervise

    code = supervise("advisor.measure.calibrate:run_calibrate", context.args)
    if code == GpuUnavailable.exit_code:
        aside(_UNCALIBRATED)
    raise Exit(code)


def doctor(undo: _Undo = False, as_json: options.AsJson = False) -> None:
    """Check this machine for what spoils measuring or sharing.

    The answer has a remedy for each finding. blocks: something cannot be done here. spoils: it can,
    but the numbers are off. note: good to know. The exit code is 4 if something blocks.
    """
    from advisor.doctor import examine, findings_document, findings_text
    from advisor.run import undo_left

    for line in undo_left() if undo else ():
        aside(line)
    findings = examine()
    if as_json:
        show_json(findings_document(findings))
    else:
        show_text(findings_text(findings))
    blocked = any(each.severity == "blocks" for each in findings)
    raise Exit(GpuUnavailable.exit_code if blocked else 0)


def validate(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    top: options.Top = 3,
    device: options.Device = DEFAULT_DEVICE,
    ray: _Ray = None,
    runs: _RunsFile = None,
    dry_run: _DryRun = False,
    out: _RunsFolder = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = True,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Run the best plans and compare them with their predictions.

    The exit code is 5 if a measured step lies outside its predicted interval.
    """
    from advisor import validate as validation
    from advisor.report.forecast import host_note, with_estimates_named
    from advisor.validation_runs import planned_on, process_text

    passed = passed_options(context)
    of_running = (
        "jobs",
        "job_file",
        "dry_run",
        "objective",
        "top",
        "device",
        "ray",
        "calibration",
        "check_host",
    )
    exclude(passed, "runs", of_running, "--runs compares existing runs and chooses none.")
    exclude(passed, "dry_run", ("as_json", "out", "ray"), "a dry run only prints processes.")
    exclude(passed, "ray", ("device", "check_host"), "the plans run on the nodes of the cluster.")
    log = mlflow_log(mlflow)
    advisor = advisor_for(gpu, None, profiles, models, calibration, host_cores)
    if runs is not None:
        validated = validation.validate_file(runs, advisor, out)
    else:
        members = chosen_jobs(advisor, jobs, job_file)
        if not dry_run and ray is None:
            advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
        advised = advisor.rank(members, objective)
        if dry_run:
            if advised.standing.estimated_from is not None:
                aside(with_estimates_named(advised.standing, ""))
            plans, _ = validation.choose(advised, top, "dry-run")
            for process in planned_on(plans, device):
                show_text(process_text(process))
            return
        validated = validation.validate_advice(advised, advisor, top, device, out, ray)
        validated = replace(validated, host=host_note(advised.standing))
    document = validation.validation_document
    show_answer(validated, as_json, validation.validation_table, document)
    if log is not None:
        log.validation(document(validated))
    validation.check(validated)


def _read_measured(gpu: "Gpu", folder: Path | None) -> "tuple[MeasuredGpu, Sequence[Run]]":
    """Read profiles and runs on `gpu`, and which runs are shipped; warn about invalid profiles."""
    from advisor.learn.observations import MeasuredGpu
    from advisor.workload.store import measured_profiles, runs_by_owner, tenants_of

    shipped, own = runs_by_owner(gpu.key, folder)
    profiles, refused = measured_profiles(gpu.key, folder, tenants_of(shipped + own))
    leave_out(*refused)
    return MeasuredGpu(gpu, profiles, shipped + own, own), shipped


def fit(
    gpu: options.GpuKey = DEFAULT_GPU,
    profiles: options.Profiles = None,
    out: _ModelFolder = None,
    tune: _Tune = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit the model to all runs, yours included.

    One run on a GPU is enough. Without a run of yours, `fit` changes nothing: use --profiles or
    --out to fit to the shipped runs.
    """
    from advisor.hardware.gpus import gpu as find_gpu
    from advisor.hardware.gpus import known_gpus
    from advisor.prediction.model import model_text
    from advisor.report.fitted import fit_document, fit_report
    from advisor.workload.reading import MODEL_FILE, user_folder
    from advisor.workload.store import profiled_gpus
    from advisor.workload.writing import writable, write_whole

    require_extra("`advisor fit`", "fit", "sklearn", *(["optuna"] if tune else []))
    if not (out or profiles or any(user_folder("profiles").glob("*/runs/*.jsonl"))):
        raise InvalidInput(
            "you have no runs yet, so the model stays as it is. Measure some where the GPU is: "
            "`advisor validate JOB...`. Add --out DIR to fit to the shipped runs alone."
        )
    card = find_gpu(gpu)
    path = (out or user_folder("models")) / MODEL_FILE
    writable(path)  # before a minute of fitting
    measured, _ = _read_measured(card, profiles)
    if not measured.runs:
        raise InvalidInput(
            f"no run on {with_article(card.key)} yet, so the model stays as it is. Answers for "
            f"{card.key} are estimated, with wider intervals. Measure runs where such a GPU is: "
            f"`advisor validate JOB...`."
        )
    catalogue = known_gpus()  # which has no CPU
    keys = sorted((catalogue.keys() & profiled_gpus(profiles)) - {card.key})
    others = [_read_measured(catalogue[key], profiles)[0] for key in keys]
    others = [other for other in others if other.runs]
    # In one order whichever GPU was named, so that the model is one and the same.
    model = _fit_with_progress(
        sorted([measured, *others], key=lambda one: one.gpu.key), profiles, search=tune
    )
    write_whole(path, model_text(model))
    show_answer(fit_document(path, model, measured, others), as_json, fit_report, lambda it: it)


def _fit_with_progress(
    measured: "Sequence[MeasuredGpu]", profiles: Path | None, *, search: bool
) -> "Model":
    from advisor.hardware.machine import allowed_cores
    from advisor.learn.fit import Constants, tune
    from advisor.learn.fit import fit as fit_model
    from advisor.learn.own_runs import with_own_paces
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
    context: Context,
    gpu: options.GpuKey = DEFAULT_GPU,
    profiles: options.Profiles = None,
    predictions: _Predictions = None,
    out: _PredictionsOut = None,
    as_json: options.AsJson = False,
) -> None:
    """Score predictions for model families left out of the fit."""
    from advisor.hardware.gpus import gpu as find_gpu
    from advisor.hardware.machine import allowed_cores
    from advisor.learn.evaluate import entries_text, score_entries
    from advisor.learn.evaluate import evaluate as evaluate_model
    from advisor.report.scores import evaluation_document, evaluation_table
    from advisor.workload.writing import write_whole

    if not predictions:
        require_extra("`advisor evaluate`", "fit", "sklearn")
    why = "--out writes advisor's own predictions."
    exclude(passed_options(context), "out", ("predictions",), why)
    card = find_gpu(gpu)
    measured, shipped = _read_measured(card, profiles)
    if predictions:
        evaluation = score_entries(predictions, measured.profiles, shipped, card)
    else:
        runs = shipped if out else measured.runs
        with progress() as advance:
            evaluation = evaluate_model(
                measured.profiles,
                runs,
                card,
                len(allowed_cores()),
                tell=lambda done, total: advance(done, total, "families predicted without them"),
            )
    if out:
        write_whole(out, entries_text(evaluation))
    show_answer(evaluation, as_json, evaluation_table, evaluation_document)
