"""Runs the best plans for real, or reads runs made elsewhere, and compares them with predictions.

Runs go to the user's folder of profiles, where fitting reads them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from json import dumps
from math import exp, log
from pathlib import Path
from shlex import join
from statistics import fmean
from typing import Annotated, Any

from rich.box import SIMPLE

from advisor.api import Advisor
from advisor.documents import As, Mark
from advisor.errors import (
    AdvisorError,
    GpuUnavailable,
    InvalidInput,
    NothingFits,
    OutsideInterval,
    counted,
    in_percent,
)
from advisor.files.reading import is_file, user_folder
from advisor.files.writing import append_record, writable, write_whole
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.gpus import Gpu
from advisor.learn.scores import RunComparison, compare, profiles_of, sharing_of
from advisor.measure.campaign import Dispatcher, Ledger
from advisor.measure.device import find_device
from advisor.measure.pace import mean_step_s
from advisor.measure.planned_runs import Campaign, PlannedRun, single_runs
from advisor.measure.process import INTERRUPTED, scratch_folder, supervise
from advisor.measure.runners import RunnerSettings, cluster_runners
from advisor.measure.shared_run import planned_processes
from advisor.measure.tenant import error_of
from advisor.plan.rules import memory_problem
from advisor.plan.values import Recommendation
from advisor.prediction.caching_predictor import at_own_pace
from advisor.prediction.host import host_path_s, is_gpu_bound, on_host_checked
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval
from advisor.report.format import FittedTable, percent
from advisor.run.watched import around_first
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import read_runs


@dataclass(frozen=True, slots=True)
class RunCorrection:
    """The rest of a run as its first window shows it; entries are of its jobs.

    A first window of 0.7 to 1 s predicts the others to 1.3 / 1.5 / 2.0 % (naive / MPS / MPS limits,
    mean error), the prediction to 3.2 / 6.3 / 8.4 %: 4,108 steps of drawn runs on an H200, families
    left out.

    Attributes:
        host_factor: See `infer_host_factor`.
        rest_s: Expected by the first window, and measured in the others; empty if there are none.
        by_host_s: Predicted, and corrected by the host factor of the run before, if that had the
            same jobs; empty otherwise.
    """

    host_factor: float
    rest_s: tuple[tuple[Interval, float], ...]
    by_host_s: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """Real runs of advice.

    Attributes:
        runs: All runs, also those in which a tenant ended early.
        comparisons: Of the runs that ran to the end.
        corrections: Of the same runs.
        left_out: Plans that nothing here can run, in words.
        host: The host that was predicted for, in words.
        foreseen: Ids of runs that ran out of memory as predicted.
        estimated: By job, the key of the GPU whose profile was translated to predict it.
    """

    gpu: Annotated[Gpu, As("key")]
    runs: Annotated[tuple[Run, ...], Mark.LEFT_OUT]
    comparisons: tuple[RunComparison, ...]
    corrections: tuple[RunCorrection, ...]
    left_out: tuple[str, ...] = ()
    host: str | None = None
    foreseen: tuple[str, ...] = ()
    estimated: Mapping[str, str] = field(default_factory=dict)


def validate_advice(
    recommendation: Recommendation,
    advisor: Advisor,
    top: int,
    device: str = DEFAULT_DEVICE,
    store: Path | None = None,
    ray: str | None = None,
) -> Validation:
    """Run the `top` best plans that can be run and compare them with their predictions.

    They run one after another on `device`, or at once on GPUs of the Ray cluster at `ray`.
    Predictions are those by which plans were ranked, for the host as it was beforehand. The runs
    are added to `store`, a folder laid out as ``profiles/``, or to the user's own.

    Raises:
        NothingFits: No plan can be run.
        GpuUnavailable: No GPU, no permission, or another process holds it.
        InvalidInput: The runs cannot go to `store`.
    """
    gpu = recommendation.gpu
    stamp = f"validation-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    plans, left_out = choose(recommendation, top, stamp)
    file = store_file(gpu.key, store)
    writable(file)  # before minutes of running
    if ray is None:
        runs = run_plans(gpu.key, plans, device, file)
    else:
        runs = run_plans_on_ray(gpu.key, plans, ray, file)
    profiles = {job.name: job.profile for job in recommendation.jobs}
    comparisons = compared_as_ranked(runs, profiles, advisor)
    return _validation(gpu, runs, comparisons, profiles, left_out=left_out)


def choose(
    recommendation: Recommendation, top: int, stamp: str
) -> tuple[tuple[PlannedRun, ...], tuple[str, ...]]:
    """Choose the `top` best plans that can be run; return also, in words, better ones that cannot.

    Raises:
        NothingFits: No plan can be run.
    """
    workloads = tuple(job.profile.workload for job in recommendation.jobs)
    plans: list[PlannedRun] = []
    left_out = []
    for plan in recommendation.plans:
        if len(plans) == top:
            break
        sharing = str(plan.sharing)
        if plan.sharing.mode != "serial" and together(plan.sharing) is None:
            mig = bool(plan.sharing.instances)
            why = "nothing here makes MIG instances" if mig else "it is several runs"
            left_out.append(f"plan {plan.rank}, {sharing}: {why}")
            continue
        run = f"{stamp}-plan{plan.rank}"
        plans.append(PlannedRun(id=run, sharing=sharing, purpose="validation", workloads=workloads))
    if not plans:
        raise NothingFits(
            f"no plan can be compared here, because {left_out[0]}. Run one: `advisor export` with "
            "--format json, then `advisor run FILE --apply`."
        )
    return tuple(plans), tuple(left_out)


def store_file(gpu: str, store: Path | None = None) -> Path:
    """Return the file of validation runs, where `advisor fit` finds them."""
    return (store or user_folder("profiles")) / gpu / "runs" / "validation.jsonl"


def run_plans(gpu: str, plans: Sequence[PlannedRun], device: str, store: Path) -> tuple[Run, ...]:
    """Run `plans` on the GPU, each recorded in the JSON Lines file `store` as it finishes.

    Progress and problems are printed on stderr.

    Raises:
        GpuUnavailable: No GPU, no permission, or another process holds it.
        InvalidInput: The plans cannot be run on that device.
        AdvisorError: A run failed.
    """
    find_device(device)  # whose error is one sentence here, and two after the process below
    listed = {"schema": 1, "gpu": gpu, "plans": [asdict(plan) for plan in plans]}
    with scratch_folder() as folder:
        file = folder / "plans.json"
        write_whole(file, dumps(listed, indent=1))
        store.parent.mkdir(parents=True, exist_ok=True)
        options = {"plans": str(file), "device": device, "out": str(store)}
        code = supervise("advisor.measure.shared_run:run_list", dumps(options))
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise error_of(code, "the plans did not run; see the line before")
    wanted = {run.id for plan in plans for run in single_runs(plan)}
    return tuple(run for run in read_runs(store) if run.id in wanted)


def run_plans_on_ray(
    gpu: str, plans: Sequence[PlannedRun], address: str, store: Path
) -> tuple[Run, ...]:
    """Run `plans` on free GPUs of a Ray cluster at once, recorded in files with `store`.

    Raises:
        AdvisorError: Ray is not installed, or a run failed.
        GpuUnavailable: There is no such cluster, or it has no such GPU free.
    """
    wanted = [run for plan in plans for run in single_runs(plan)]
    campaign = Campaign(name=store.stem, prefix=store.stem, gpu=gpu, seed=0, runs=tuple(plans))
    settings = RunnerSettings(campaign, "advisor validate --ray")
    store.parent.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(store.parent, store.stem, store.parents[1])
    dispatcher = Dispatcher(wanted, ledger, None)
    dispatcher.work(cluster_runners(address, settings, len(wanted)))
    if dispatcher.failed:
        raise AdvisorError("some plans did not run; see the lines before")
    return tuple(ledger.runs[run.id] for run in wanted)


def planned_text(plans: Sequence[PlannedRun], device: str) -> Iterator[str]:
    """Describe each process that running `plans` would start; its cores may be placeholders."""
    try:
        uuid = find_device(device).uuid
    except GpuUnavailable:
        uuid = "UUID-OF-THE-GPU"
    for process in (each for plan in plans for each in planned_processes(plan, uuid)):
        variables = [f"  {name}={value}" for name, value in process.environment.items()]
        yield "\n".join([process.role, *variables, f"  $ {join(process.command)}"])


def _validation(
    gpu: Gpu,
    runs: tuple[Run, ...],
    comparisons: tuple[RunComparison, ...],
    profiles: Mapping[str, Profile],
    **more: Any,
) -> Validation:
    sources = ((name, each.estimated_from) for name, each in sorted(profiles.items()))
    estimated = {name: key for name, key in sources if key is not None}
    corrections = corrected_by_first(comparisons, profiles)
    return Validation(gpu, runs, comparisons, corrections, estimated=estimated, **more)


def validate_file(file: Path, advisor: Advisor, store: Path | None = None) -> Validation:
    """Compare the runs in `file`, maybe from another machine, with their predictions.

    The predictions are for the cores that each run had, whose speed it records; this machine's
    calibration is not used. `file` is as ``advisor runs`` writes it.

    Raises:
        InvalidInput: The file is malformed or of another GPU, or a workload has no profile.
    """
    runs, gpu = read_runs(file), advisor.card
    if not runs:
        raise InvalidInput(f"{file}: no runs found. `advisor runs` writes them.")
    names = {tenant.workload.name for run in runs for tenant in run.tenants}
    profiles = {name: advisor.find_profile(name) for name in sorted(names)}
    predictor = advisor.uncalibrated.on_known_host()
    comparisons = compared(runs, profiles, predictor, gpu)
    kept = store_file(gpu.key, store)
    if file.resolve().parent != kept.parent.resolve():  # there `advisor fit` finds them anyway
        keep(runs, kept)
    foreseen = tuple(
        run.id
        for run in runs
        if any(tenant.outcome == "out-of-memory" for tenant in run.tenants)
        and memory_problem(predictor.predict(profiles_of(run, profiles), sharing_of(run)), gpu)
    )
    return _validation(
        gpu,
        runs,
        comparisons,
        profiles,
        foreseen=foreseen,
        host="Predictions use the measured speed of each run's cores, if the run has it.",
    )


def keep(runs: Sequence[Run], store: Path) -> int:
    """Append those of `runs` that the file `store` lacks; return their number.

    If another run there has its id, a run is kept under its id and date.
    """
    stored = read_runs(store) if is_file(store) else ()
    ids = {run.id for run in stored}
    contents = {(run.provenance, run.tenants) for run in stored}
    new = [run for run in runs if (run.provenance, run.tenants) not in contents]
    for run in new:
        taken = run.id in ids
        append_record(store, replace(run, id=f"{run.id}-{run.provenance.date}") if taken else run)
    return len(new)


def compared(
    runs: Sequence[Run], profiles: Mapping[str, Profile], predictor: Predicts, gpu: Gpu
) -> tuple[RunComparison, ...]:
    """Predict each of `runs` from its tenants' profiles, and compare it with the measurement.

    Profiles are converted to the cores that the run had, if it recorded their speed. A run in which
    a tenant ended early is skipped, and named by `check`; so is one that does not show pace.

    Raises:
        InvalidInput: A run is of another GPU, or a tenant has no profile.
    """
    if strangers := sorted({run.gpu for run in runs} - {gpu.key}):
        raise InvalidInput(
            f"the runs are of {', '.join(strangers)}, not of {gpu.key}. Use --gpu {strangers[0]}."
        )
    return tuple(
        compare(
            run,
            tuple(
                on_host_checked(profile, tenant.host_check_s)
                for profile, tenant in zip(profiles_of(run, profiles), run.tenants, strict=True)
            ),
            predictor,
        )
        for run in runs
        if run.shows_pace
    )


def compared_as_ranked(
    runs: Sequence[Run], profiles: Mapping[str, Profile], advisor: Advisor
) -> tuple[RunComparison, ...]:
    """Compare each of `runs` with the prediction by which `advisor` ranks plans, here and now.

    Jobs alone are those on its machine's host, because it computes throughput from them.
    """
    comparisons = []
    for run in (each for each in runs if each.shows_pace):
        measured = profiles_of(run, profiles)
        paced = [at_own_pace(each, advisor.own_paces) for each in measured]
        here = advisor.machine.profiles_here(paced)
        jobs = compare(run, measured, advisor.predictor).jobs
        pairs = zip(jobs, here, strict=True)
        alone = tuple(replace(job, alone_s=profile.step_s) for job, profile in pairs)
        comparisons.append(RunComparison(run, alone))
    return tuple(comparisons)


# Weight of "the host is as predicted" among the jobs' squared shares.
_AS_PREDICTED = 1.0


def infer_host_factor(
    profiles: Sequence[Profile], predicted_s: Sequence[float], measured_s: Sequence[float]
) -> float:
    """Infer how many times as long the host takes as predicted; entries are of the jobs of a mix.

    Least squares over the jobs' log(measured / predicted), each proportional to the share of its
    step that the host's path alone takes. The step of a later run of the same jobs within an hour
    is then 9.0 / 9.4 % off (MPS / limits, 4,380 pairs on an H200 and an H100) instead of 9.2 /
    10.2 %; by the plain mean over all jobs 10.2 / 10.6 %.
    """
    shares = list(map(_host_share, profiles, predicted_s))
    weighted = sum(
        share * log(measured / predicted)
        for share, measured, predicted in zip(shares, measured_s, predicted_s, strict=True)
    )
    return exp(weighted / (sum(share**2 for share in shares) + _AS_PREDICTED))


def _host_share(profile: Profile, step_s: float) -> float:
    return min(1.0, host_path_s(profile) / step_s)


def corrected_by_first(
    comparisons: Sequence[RunComparison], profiles: Mapping[str, Profile]
) -> tuple[RunCorrection, ...]:
    """Correct the rest of each run by its first window, and a run by that of the one before."""
    corrections: list[RunCorrection] = []
    for at, comparison in enumerate(comparisons):
        alone = [profiles[name] for name in comparison.run.names]
        windows = [tenant.windows for tenant in comparison.run.tenants]
        first_s = [mean_step_s(each[:1]) for each in windows]
        predicted_s = [job.predicted_s for job in comparison.jobs]
        rest_s = tuple(
            (around_first(step_s, gpu_bound=is_gpu_bound(profile)), mean_step_s(each[1:]))
            for profile, step_s, each in zip(alone, first_s, windows, strict=True)
            if len(each) > 1
        )
        by_host_s: tuple[Interval, ...] = ()
        if at and comparison.run.names == comparisons[at - 1].run.names:
            pairs = zip(alone, predicted_s, strict=True)
            factor = corrections[-1].host_factor
            by_host_s = tuple(s.scaled(factor ** _host_share(p, s.p50)) for p, s in pairs)
        factor = infer_host_factor(alone, [each.p50 for each in predicted_s], first_s)
        corrections.append(RunCorrection(factor, rest_s, by_host_s))
    return tuple(corrections)


def _correction_notes(validation: Validation) -> Iterator[str]:
    """How good the corrections were, a sentence each."""
    rests = [pair for each in validation.corrections for pair in each.rest_s]
    if rests:
        off = fmean(abs(expected.p50 / measured - 1) for expected, measured in rests)
        inside = sum(expected.contains(measured) for expected, measured in rests)
        yield (
            f"The first window of each run predicts its later windows with a mean error of "
            f"{in_percent(off, 1)}. {inside} of {counted(len(rests), 'step')} lie in their "
            f"intervals."
        )
    by_host = [
        (abs(job.error), abs(step_s.p50 / job.measured_s - 1))
        for run, each in zip(validation.comparisons, validation.corrections, strict=True)
        for job, step_s in zip(run.jobs, each.by_host_s, strict=False)
    ]
    if by_host:
        raw, corrected = (fmean(errors) for errors in zip(*by_host, strict=True))
        yield (
            "With the host factor of the run before, the mean error of the later runs is "
            f"{in_percent(corrected, 1)} instead of {in_percent(raw, 1)}."
        )


def check(validation: Validation) -> None:
    """Check that the advice came true.

    Raises:
        OutsideInterval: A measured step lies outside its interval, or a tenant ended early.
    """
    outside = [
        f"{comparison.run.id}: {job.job}: {measured} ms, not in {interval} ms"
        for comparison in validation.comparisons
        for job in comparison.jobs
        for _, interval, measured in [_step_cells(job.predicted_s, job.measured_s)]
        if not job.inside
    ]
    ended = [
        f"{run.id}: {tenant.workload.name}: {tenant.outcome}, predicted to run"
        for run in validation.runs
        for tenant in run.tenants
        if tenant.outcome != "ok" and run.id not in validation.foreseen
    ]
    if outside or ended:
        listed = "\n  ".join(outside + ended)
        raise OutsideInterval(
            f"{len(outside) + len(ended)} outside what was predicted:\n  {listed}\n"
            f"The next `advisor fit --gpu {validation.gpu.key}` learns from these runs."
        )


def validation_table(validation: Validation) -> FittedTable:
    """Return the table of ``advisor validate``: for each run its throughput, then each step."""
    notes = [f"Left out: {each}." for each in validation.left_out]
    notes += [f"Out of memory, as predicted: {each}." for each in validation.foreseen]
    estimated = validation.estimated.items()
    notes += [f"Estimated from a profile of {key}: {job}." for job, key in estimated]
    notes += _correction_notes(validation)
    caption = "\n".join(filter(None, [*notes, validation.host])) or None
    table = FittedTable(
        box=SIMPLE, padding=(0, 1), pad_edge=False, show_edge=False, caption=caption
    )
    for heading in ("", "predicted", "90 % interval", "measured", "error", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for run in validation.comparisons:
        if len(run.jobs) == 1:
            table.add_row("serial", style="bold")
        else:
            predicted, measured = run.predicted_speedup, run.measured_speedup
            cells = f"{predicted:.2f}x", "", f"{measured:.2f}x", percent(predicted / measured - 1)
            table.add_row(run.run.sharing, *cells, style="bold")
        for job in run.jobs:
            middle, interval, step = _step_cells(job.predicted_s, job.measured_s)
            mark = "" if job.inside else "outside"
            table.add_row(f"  {job.job}", middle, interval, f"{step} ms", percent(job.error), mark)
        table.add_section()
    return table


def _step_cells(predicted_s: Interval, measured_s: float) -> tuple[str, str, str]:
    """A predicted step, its interval and the measured step in milliseconds."""
    seconds = (predicted_s.p05, predicted_s.p50, predicted_s.p95, measured_s)
    low, middle, high, measured = (f"{1000 * each:,.2f}" for each in seconds)
    return middle, f"{low} to {high}", measured
