"""Runs the best plans for real, or reads runs made elsewhere, and compares them with predictions.

Runs go to the user's folder of profiles, where fitting reads them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from shlex import join
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from advisor.api import Advisor
from advisor.documents import As, Mark
from advisor.errors import (
    AdvisorError,
    GpuUnavailable,
    InvalidInput,
    NothingFits,
    OutsideInterval,
    counted,
    with_article,
)
from advisor.files.reading import is_file, read_json, user_folder
from advisor.files.writing import append_record, writable, write_whole
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.gpus import Gpu
from advisor.learn.scores import RunComparison, compare, profiles_of, sharing_of
from advisor.measure.campaign import Dispatcher, Ledger
from advisor.measure.device import find_device
from advisor.measure.planned_runs import Campaign, PlannedRun, single_runs
from advisor.measure.process import INTERRUPTED, scratch_folder, supervise
from advisor.measure.runners import RunnerSettings, cluster_runners
from advisor.measure.shared_run import planned_processes
from advisor.measure.tenant import error_of
from advisor.plan.rules import memory_problem
from advisor.plan.values import Recommendation
from advisor.prediction.caching_predictor import at_own_pace
from advisor.prediction.host import on_host_checked
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import Predictor
from advisor.report.format import percent
from advisor.run.host_pace import RunCorrection, corrected_by_first, correction_notes
from advisor.sharing import Mode
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import read_runs, runs_by_owner, shipped_folder

if TYPE_CHECKING:
    from rich.table import Table


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
    runs = (
        run_plans(gpu.key, plans, device, file)
        if ray is None
        else run_plans_on_ray(gpu.key, plans, ray, file)
    )
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
        raise NothingFits("no plan can be run here. `advisor recommend` shows all.")
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
        raise error_of(code, "the plans did not run, see the line before")
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
        raise AdvisorError("some plans did not run, see the lines before")
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
        raise InvalidInput(f"{file}: it holds no runs. `advisor runs` writes them.")
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
        host="Predicted for the cores that each run had, where it says how fast they were.",
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
            f"the runs are of {', '.join(strangers)}, but {gpu.key} was asked for. "
            f"Use --gpu {strangers[0]}."
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


def validation_table(validation: Validation) -> "Table":
    """Return the table of ``advisor validate``: for each run its throughput, then each step."""
    from rich.box import SIMPLE

    from advisor.report.format import FittedTable

    notes = [f"Left out: {each}." for each in validation.left_out]
    notes += [f"Out of memory, as predicted: {each}." for each in validation.foreseen]
    estimated = validation.estimated.items()
    notes += [f"Estimated from a profile of {key}: {job}." for job, key in estimated]
    notes += correction_notes(validation.comparisons, validation.corrections)
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


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Real runs whose tenants are all among some jobs, with their predictions.

    Attributes:
        shipped: Runs that came with the advisor, from which its model learnt.
        own: The user's own runs.
        same: Number of these runs that have exactly these jobs and copies.
        noise: Mean share by which a step differs between two runs of the same jobs with fresh
            processes, of each mode that has repeats.
    """

    shipped: tuple[RunComparison, ...]
    own: tuple[RunComparison, ...]
    same: int
    noise: Mapping[Mode, float]

    @property
    def runs(self) -> tuple[RunComparison, ...]:
        """All of them, the user's own last."""
        return *self.shipped, *self.own


def runs_of_jobs(profiles: Sequence[Profile], predictor: Predictor) -> MeasuredRuns:
    """Find the runs in which some of the jobs of `profiles`, one each, and no others share the GPU.

    Each is predicted for the cores that it had, by `compared`.

    Raises:
        InvalidInput: A file of runs, or the noise file in their folder, is malformed.
    """
    by_name = {each.name: each for each in profiles}
    gpu = predictor.gpu
    # A job alone on the whole GPU shares nothing, and is what profiles are made of.
    shipped, own = (
        compared(
            [
                run
                for run in runs
                if set(run.names) <= by_name.keys()
                and run.shows_pace
                and sharing_of(run).mode != "serial"
            ],
            by_name,
            predictor,
            gpu,
        )
        for runs in runs_by_owner(gpu.key)
    )
    copies = Counter(each.name for each in profiles)
    same = sum(Counter(each.run.names) == copies for each in (*shipped, *own))
    path = shipped_folder("profiles") / gpu.key / "runs" / "noise.json"
    noise: dict[Mode, float] = {}
    try:
        if is_file(path):
            noise = {mode: float(share) for mode, share in read_json(path).items()}
    except (TypeError, AttributeError, ValueError):
        raise InvalidInput(
            f"{path}: expected a share for each mode. Write it again: `make report`."
        ) from None
    return MeasuredRuns(shipped, own, same, noise)


def runs_of_jobs_text(measured: MeasuredRuns, gpu: str) -> str:
    """Describe the runs, how good their predictions are, and how good they could be at all."""
    if not (runs := measured.runs):
        return (
            f"No run in which just these jobs share {with_article(gpu)} was measured. `advisor "
            f"validate` runs the best plans and compares them with their predictions."
        )
    jobs = [job for run in runs for job in run.jobs]
    inside = sum(job.inside for job in jobs)
    own = f", {len(measured.own)} of them your own (diamonds)" if measured.own else ""
    sentences = [
        f"{counted(len(runs), 'run')} of some of these jobs{own}; "
        f"{measured.same or 'none'} of all of them together. Of {counted(len(jobs), 'step')} "
        f"{inside} lie in their 90 % intervals, which the thin lines are; the median is "
        f"{percent(median(abs(job.error) for job in jobs))} off."
    ]
    if measured.noise:
        sentences.append(
            "The grey band is the mean difference between two runs of the same jobs with fresh "
            "processes: nothing can be predicted better."
        )
    if measured.shipped:
        sentences.append(
            "The model learnt from the shipped runs: of jobs that it never saw, errors are larger, "
            "as README says."
        )
    return " ".join(sentences)


def runs_of_jobs_rows(measured: MeasuredRuns) -> list[dict[str, Any]]:
    """Return a row for each tenant of each run; errors are in per cent of the measured step."""
    rows: list[dict[str, Any]] = []
    for runs, whose in ((measured.shipped, "shipped"), (measured.own, "your own")):
        for run, job in [(each, job) for each in runs for job in each.jobs]:
            mode, predicted_s = sharing_of(run.run).mode, job.predicted_s
            middle, interval, step = _step_cells(predicted_s, job.measured_s)
            noise = measured.noise.get(mode)
            rows.append(
                {
                    "mode": mode,
                    "job": job.job,
                    "whose": whose,
                    "low": 100 * (predicted_s.p05 / job.measured_s - 1),
                    "error": 100 * job.error,
                    "high": 100 * (predicted_s.p95 / job.measured_s - 1),
                    "noise": None if noise is None else 100 * noise,
                    "run": f"{run.run.id}: {run.run.sharing}",
                    "hint": f"{middle} ms predicted ({interval}), {step} ms measured",
                }
            )
    return rows
