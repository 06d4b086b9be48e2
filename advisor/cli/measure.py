"""Commands that measure runs or this machine, and that learn from runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Context, Exit

from advisor.cli import options
from advisor.cli.options import flag, option
from advisor.cli.output import aside, leave_out, progress, show_answer, show_text
from advisor.cli.question import Sources, chosen_jobs, exclude, mlflow_log, on_checked_host
from advisor.documents import answer_document
from advisor.errors import GpuUnavailable, InvalidInput, counted, require_extra, with_article
from advisor.files.reading import MODEL_FILE, user_folder
from advisor.files.writing import new_path, writable, write_whole
from advisor.hardware import DEFAULT_DEVICE, DEFAULT_GPU
from advisor.hardware.gpus import gpu as find_gpu
from advisor.hardware.gpus import known_gpus

if TYPE_CHECKING:
    from advisor.hardware.gpus import Gpu
    from advisor.learn.observations import MeasuredGpu


def supervised(entry: str, context: Context, **passed: Any) -> int:
    """Run `entry` of a measuring module under a supervisor; return the exit code.

    It gets one JSON document: the words of the command, and its options or what is `passed`.
    """
    from advisor.measure.process import supervise

    document = {"words": context.obj or (), **(passed or context.params)}
    return supervise(entry, json.dumps(document, default=str))


def campaign(
    context: Context,
    plan: Path = Argument(
        ..., metavar="FILE", help="Plan of a campaign, as `advisor init campaign` writes it."
    ),
    out: Path | None = option(
        "DIR",
        "Add the runs to this folder; default: your own, which every command reads.",
        parser=new_path,
    ),
    profiles: Path | None = option(
        "DIR",
        "Read profiles from this folder, and write missing ones to it; default: your own.",
    ),
    device: str | None = option(
        "LIST",
        "Use these GPUs, by index or UUID, e.g. 0-7 or 0,2; or cpu,cpu to try it out with two "
        "runners; default: 0; on Ray: all free GPUs.",
    ),
    cores: str | None = option(
        "CORES", "Split these host cores evenly among the devices, e.g. 0-63; default: all."
    ),
    deadline: options.Deadline = None,
    dry_run: bool = flag("Write the list of runs and count them; measure nothing.", "--dry-run"),
    as_json: options.AsJson = False,
    ray: options.Ray = None,
) -> None:
    """Measure a plan of many mixes on one or more GPUs.

    All GPUs take runs from one queue. Runs that the folder contains are skipped. The exit code is
    0 if all were measured or the deadline is near.
    """
    raise Exit(supervised("advisor.measure.campaign:run_campaign", context))


def runs(
    context: Context,
    plans: Path = Argument(
        ...,
        metavar="PLANS",
        help="JSON file of plans, or an answer of `recommend --json`; plans on MIG are left out.",
    ),
    out: Path = option(
        "FILE", "Add the runs to this JSON Lines file.", default=..., parser=new_path
    ),
    device: options.DeviceOrCpu = DEFAULT_DEVICE,
    cores: options.Cores = None,
    settle_s: float = option(
        "SECONDS", "Train for this long before the first window.", "--settle", default=0.7
    ),
    window_s: float = option(
        "SECONDS", "Measure each window for at least this long.", "--window", default=1.0
    ),
    windows: int = option("N", "Measure N windows in a run.", default=3),
    skip_existing: bool = flag("Skip the runs that the file contains.", "--skip-existing"),
    deadline: options.Deadline = None,
) -> None:
    """Measure the plans in a file of `recommend --json`.

    The jobs of a plan run together on one GPU, and advisor records each of them.
    """
    raise Exit(supervised("advisor.measure.shared_run:run_list", context))


def calibrate(
    context: Context,
    device: options.Device = DEFAULT_DEVICE,
    out: Path | None = option(
        "FILE",
        "Write to this file; default: your own, which every command reads.",
        parser=options.to_write,
    ),
    gpu: options.OnlyGpu = None,
    cores: options.Cores = None,
) -> None:
    """Measure this machine for better advice.

    In a minute, advisor measures the memory of CUDA contexts, the cost of time-slicing, and idle
    power. Advice for this GPU then uses these numbers.
    """
    code = supervised("advisor.measure.calibrate:run_calibrate", context)
    if code == GpuUnavailable.exit_code:
        aside("Advice needs no calibration: without one, it uses the fitted model's constants.")
    raise Exit(code)


def doctor(
    undo: bool = flag("First undo what killed scripts and measurements left.", "--undo"),
    as_json: options.AsJson = False,
) -> None:
    """Check this machine for problems with measuring or sharing.

    Each finding has a remedy. blocks: a command cannot work here. spoils: its numbers are off.
    note: good to know. The exit code is 4 if a finding blocks.
    """
    from advisor.run.doctor import Findings, examine, findings_text
    from advisor.run.start import undo_left

    for line in undo_left() if undo else ():
        aside(line)
    findings = examine()
    show_answer(Findings(tuple(findings)), as_json, lambda it: findings_text(it.findings))
    blocked = any(each.severity == "blocks" for each in findings)
    raise Exit(GpuUnavailable.exit_code if blocked else 0)


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
    out: Path | None = option(
        "DIR", "Write the model to this folder; default: your own.", parser=new_path
    ),
    tune: bool = flag(
        "Also search the constants of replay and regression, for about 10 minutes.", "--tune"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Fit the model to all runs, yours included.

    One run on a GPU is enough. Without a run of yours, `fit` changes nothing: use --profiles or
    --out to fit to the shipped runs.
    """
    from advisor.hardware.machine import allowed_cores
    from advisor.prediction.model import model_text
    from advisor.report.lists import fit_of, fit_report
    from advisor.workload.store import profiled_gpus

    require_extra("`advisor fit`", "fit", "sklearn", *(["optuna"] if tune else []))
    from advisor.learn.fit import Constants, with_own_paces
    from advisor.learn.fit import fit as fit_model
    from advisor.learn.fit import tune as tuned
    from advisor.learn.surrogate_fit import with_surrogate

    if not (out or profiles or any(user_folder("profiles").glob("*/runs/*.jsonl"))):
        raise InvalidInput(
            "you have no runs yet, so the model stays as it is. Measure some on a machine with "
            "the GPU: `advisor validate JOB...`. Add --out DIR to fit to the shipped runs alone."
        )
    card = find_gpu(gpu)
    path = (out or user_folder("models")) / MODEL_FILE
    writable(path)  # before a minute of fitting
    measured = _read_measured(card, profiles)
    if not measured.runs:
        raise InvalidInput(
            f"no run on {with_article(card.key)} yet, so the model stays as it is. Answers for "
            f"{card.key} are estimated, with wider intervals. Measure runs on a machine with such "
            "a GPU: `advisor validate JOB...`."
        )
    catalogue = known_gpus()  # which has no CPU
    keys = sorted((catalogue.keys() & profiled_gpus(profiles)) - {card.key})
    others = [_read_measured(catalogue[key], profiles) for key in keys]
    others = [other for other in others if other.runs]
    # In one order whichever GPU was named, so that the model is one and the same.
    every = sorted([measured, *others], key=lambda one: one.gpu.key)
    with progress() as advance:
        advance(0, 2, f"fitting to {counted(sum(len(one.runs) for one in every), 'run')}")
        model = fit_model(every, constants=tuned(every) if tune else Constants())
        advance(1, 2, "fitting the surrogate model")
        lessons = {one.gpu: list(one.profiles.values()) for one in every}
        model = with_surrogate(model, lessons, processes=len(allowed_cores()))
        advance(2, 2, "fitted")
    write_whole(path, model_text(with_own_paces(model, every, profiles)))
    show_answer(fit_of(path, model, measured, others), as_json, fit_report)


def evaluate(
    gpu: options.GpuKey = DEFAULT_GPU,
    profiles: options.Profiles = None,
    models: options.Models = None,
    predictions: Path | None = option(
        "FILE", "Score the predictions in this file, a run a line; default: advisor's own."
    ),
    as_json: options.AsJson = False,
) -> None:
    """Compare predictions with your runs.

    `validate` and `campaign` measure runs.
    """
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
            f"no run of yours on {with_article(card.key)} can be scored. Measure some on a "
            "machine with such a GPU: `advisor validate JOB...`."
        )
    scores = scores_of(comparisons, card.key, left_out)
    show_answer(scores, as_json, scores_report)


def validate(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    top: options.Top = 3,
    device: options.Device = DEFAULT_DEVICE,
    ray: options.Ray = None,
    runs: Path | None = option("FILE", "Compare the runs in this file, and start none."),
    dry_run: bool = flag("Print each process with its environment, and start none.", "--dry-run"),
    out: Path | None = option(
        "DIR",
        "Add the runs to this folder of profiles; default: your own.",
        parser=new_path,
    ),
    share_loader: options.ShareLoader = False,
    *,
    sources: Sources,
    check_host: options.CheckHost = True,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Run the best plans and compare them with their predictions.

    The exit code is 5 if a measured step lies outside its predicted interval.
    """
    from advisor.report.forecast import host_note, with_estimates_named
    from advisor.run import validate as validation

    of_running = ["jobs", "job_file", "dry_run", "objective", "top", "device", "ray"]
    of_running += ["check_host", "share_loader"]
    exclude(context, "runs", *of_running, why="--runs compares existing runs and chooses none.")
    exclude(context, "dry_run", "as_json", "out", "ray", why="a dry run only prints processes.")
    exclude(context, "ray", "device", "check_host", why="the plans run on the cluster's nodes.")
    log = mlflow_log(mlflow)
    advisor = sources.advisor(gpu, share_loader=share_loader)
    if runs is not None:
        validated = validation.validate_file(runs, advisor, out)
    else:
        members = chosen_jobs(advisor, jobs, job_file)
        if not dry_run and ray is None:
            advisor = on_checked_host(advisor, members, check_host)
        advised = advisor.recommend(members, objective)
        if dry_run:
            if advised.standing.estimated_from is not None:
                aside(with_estimates_named(advised.standing, ""))
            plans, _ = validation.choose(advised, top, "dry-run")
            for text in validation.planned_text(plans, device):
                show_text(text)
            return
        validated = validation.validate_advice(advised, advisor, top, device, out, ray)
        validated = replace(validated, host=host_note(advised.standing))
    show_answer(validated, as_json, validation.validation_table)
    if log is not None:
        log.validation(answer_document(validated))
    validation.check(validated)
