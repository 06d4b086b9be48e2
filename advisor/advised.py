"""Runs advice for real: ranked plans become runs in the user's folder, which fitting reads."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from shlex import join
from statistics import median
from typing import Any

from advisor.api import Advisor
from advisor.errors import (
    AdvisorError,
    GpuUnavailable,
    InvalidInput,
    NothingFits,
    counted,
    with_article,
)
from advisor.learn.scores import JobComparison, RunComparison, sharing_of
from advisor.measure.run_list import PlannedRun, mixes_of
from advisor.measure.shared_run import PlannedProcess, planned_processes
from advisor.plan.values import Recommendation
from advisor.prediction.predictor import Predictor
from advisor.report.scores import percent
from advisor.sharing import Mode
from advisor.sharing.groups import together
from advisor.validate import Validation, compared, compared_as_ranked, foreseen_misfits, step_cells
from advisor.workload.profile import Profile
from advisor.workload.reading import is_file, read_json, user_folder
from advisor.workload.run import Run
from advisor.workload.store import read_runs, runs_by_owner, shipped_folder
from advisor.workload.writing import append_run, writable, write_whole


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Real runs whose tenants are all among some jobs, with their predictions.

    Attributes:
        shipped: Runs that came with the advisor, from which its model learnt.
        own: The user's own runs.
        same: Number of these runs that have exactly these jobs and copies.
        noise: By mode: median share by which a step differs between two runs of the same jobs with
            fresh processes; modes without repeats are absent.
    """

    shipped: tuple[RunComparison, ...]
    own: tuple[RunComparison, ...]
    same: int
    noise: Mapping[Mode, float]

    @property
    def runs(self) -> tuple[RunComparison, ...]:
        """All of them, the user's own last."""
        return *self.shipped, *self.own

    @property
    def jobs(self) -> tuple[JobComparison, ...]:
        """All tenants of all runs."""
        return tuple(job for run in self.runs for job in run.jobs)


def runs_of_jobs(
    profiles: Sequence[Profile], predictor: Predictor, given: Path | None = None
) -> MeasuredRuns:
    """The runs in which some of the jobs of `profiles`, and no others, share the GPU.

    Each is predicted for the cores that it had, as `advisor.validate.compared` does.

    Args:
        profiles: A profile for each job, copies as often as there are.
        predictor: Of the GPU that they were measured on.
        given: Folder of profiles; None: the shipped ones and the user's own.

    Raises:
        InvalidInput: A file of runs, or the noise file beside them, is malformed.
    """
    by_name = {each.name: each for each in profiles}
    gpu = predictor.gpu
    shipped, own = (
        compared([run for run in runs if _shared_by(run, by_name)], by_name, predictor, gpu)
        for runs in runs_by_owner(gpu.key, given)
    )
    asked = Counter(each.name for each in profiles)
    same = sum(_tenants(each.run) == asked for each in (*shipped, *own))
    return MeasuredRuns(shipped, own, same, noise_floors(gpu.key, given))


def noise_floors(gpu: str, given: Path | None = None) -> dict[Mode, float]:
    """Return the noise floor of each mode on that GPU, from ``runs/noise.json``; empty without it.

    Raises:
        InvalidInput: The file is malformed.
    """
    path = shipped_folder("profiles", given) / gpu / "runs" / "noise.json"
    if not is_file(path):
        return {}
    try:
        return {mode: float(median) for mode, median in read_json(path).items()}
    except (TypeError, AttributeError, ValueError):
        raise InvalidInput(
            f"{path}: expected a share for each mode. Write it again: `make report`."
        ) from None


def _shared_by(run: Run, jobs: Mapping[str, Profile]) -> bool:
    # One alone on the whole GPU was not shared, and is what profiles are made of.
    return set(_tenants(run)) <= jobs.keys() and run.shows_pace and sharing_of(run).mode != "serial"


def _tenants(run: Run) -> Counter[str]:
    return Counter(tenant.workload.name for tenant in run.tenants)


_EACH_RUNS_OWN = "Predicted for the cores that each run had, where it says how fast they were."


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which plans of a recommendation are run.

    Attributes:
        plans: The best plans that can be run, best first.
        left_out: Better or equally good plans that nothing here can run, in words.
    """

    plans: tuple[PlannedRun, ...]
    left_out: tuple[str, ...]


def choose(recommendation: Recommendation, top: int, stamp: str) -> Chosen:
    """The `top` best plans that can be run.

    Args:
        recommendation: Plans, best first.
        top: How many to run at most.
        stamp: Begins every run's id; unique to this validation.

    Raises:
        NothingFits: No plan can be run.
    """
    workloads = tuple(job.profile.workload for job in recommendation.jobs)
    plans: list[PlannedRun] = []
    left_out = []
    for plan in recommendation.plans:
        if len(plans) == top:
            break
        if plan.sharing.mode != "serial" and together(plan.sharing) is None:
            phased = plan.sharing.mode == "phases"
            why = "its groups are runs" if phased else "nothing here makes MIG instances"
            left_out.append(f"plan {plan.rank}, {plan.sharing}: {why}")
            continue
        name = f"{stamp}-plan{plan.rank}"
        sharing = str(plan.sharing)
        plans.append(
            PlannedRun(id=name, sharing=sharing, purpose="validation", workloads=workloads)
        )
    if not plans:
        raise NothingFits("no plan can be run here. `advisor recommend` shows all.")
    return Chosen(tuple(plans), tuple(left_out))


def validate_advice(
    recommendation: Recommendation,
    advisor: Advisor,
    top: int,
    device: str = "0",
    store: Path | None = None,
) -> Validation:
    """Run the `top` best plans that can be run and compare them with their predictions.

    The predictions are those by which plans were ranked, for the host as known beforehand. The
    speed of the cores during a run is recorded for the next fit, and changes nothing here, since no
    advice can know it.

    Args:
        recommendation: What `advisor` recommended.
        advisor: What answered it.
        top: How many plans to run at most.
        device: GPU index or UUID.
        store: A folder laid out as ``profiles/``, to which the runs are added; None: the user's
            data folder. `advisor fit` finds them in either.

    Raises:
        NothingFits: No plan can be run.
        GpuUnavailable: No GPU, no permission, or another process holds it.
        InvalidInput: The runs cannot go to `store`.
    """
    gpu = recommendation.gpu
    chosen = choose(recommendation, top, new_stamp())
    file = store_file(gpu.key, store)
    writable(file)  # before minutes of running
    runs = run_plans(gpu.key, chosen.plans, device, file)
    profiles = {job.name: job.profile for job in recommendation.jobs}
    return Validation(
        gpu, runs, compared_as_ranked(runs, profiles, advisor), chosen.left_out,
        estimated=_estimated(profiles),
    )  # fmt: skip


def _estimated(profiles: Mapping[str, Profile]) -> dict[str, str]:
    known = ((name, each.estimated_from) for name, each in sorted(profiles.items()))
    return {name: key for name, key in known if key is not None}


def validate_file(file: Path, advisor: Advisor, store: Path | None = None) -> Validation:
    """Compare the runs in `file`, maybe from another machine, with their predictions.

    The predictions are for the cores that each run had, whose speed it records; this machine's
    calibration is not used.

    Args:
        file: JSON Lines, as ``python -m advisor.measure runs`` writes it.
        advisor: For the GPU that the runs were made on.
        store: As for `validate_advice`.

    Raises:
        InvalidInput: The file is malformed or of another GPU, or a workload has no profile.
    """
    runs, gpu = read_runs(file), advisor.card
    if not runs:
        raise InvalidInput(
            f"{file}: it holds no runs. `python -m advisor.measure runs` writes them."
        )
    names = {tenant.workload.name for run in runs for tenant in run.tenants}
    known = {name: advisor.find_profile(name) for name in sorted(names)}
    predictor = advisor.uncalibrated.on_known_cores()
    comparisons = compared(runs, known, predictor, gpu)
    kept = store_file(gpu.key, store)
    if file.resolve().parent != kept.parent.resolve():  # there `advisor fit` finds them anyway
        keep(runs, kept)
    foreseen = foreseen_misfits(runs, known, predictor, gpu)
    return Validation(
        gpu, runs, comparisons, host=_EACH_RUNS_OWN, foreseen=foreseen, estimated=_estimated(known)
    )


def new_stamp() -> str:
    """The current second, which begins the ids of the runs of a validation."""
    return f"validation-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def store_file(gpu: str, store: Path | None = None) -> Path:
    """Where validation runs go so that `advisor fit` finds them: below `store` or the user's own.

    Args:
        gpu: Catalogue key.
        store: A folder laid out as ``profiles/``; None: the user's data folder.
    """
    return (store or user_folder("profiles")) / gpu / "runs" / "validation.jsonl"


def run_plans(gpu: str, plans: Sequence[PlannedRun], device: str, store: Path) -> tuple[Run, ...]:
    """Run `plans` on the GPU, each recorded in the JSON Lines file `store` as it finishes.

    Progress and problems are printed on stderr.

    Raises:
        GpuUnavailable: No GPU, no permission, or another process holds it.
        InvalidInput: The plans cannot be run on that device.
        AdvisorError: A run failed.
        KeyboardInterrupt: It was interrupted; nothing that it started is left.
    """
    from advisor.measure.process import INTERRUPTED, scratch_folder, supervise

    with scratch_folder() as folder:
        file = folder / "plans.json"
        write_whole(file, plans_text(gpu, plans))
        store.parent.mkdir(parents=True, exist_ok=True)
        words = [str(file), "--device", device, "--out", str(store)]
        code = supervise("advisor.measure.shared_run:run_list", words)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        kinds = {kind.exit_code: kind for kind in (InvalidInput, GpuUnavailable)}
        raise kinds.get(code, AdvisorError)("the plans did not run; the line before says why")
    wanted = {mix.id for plan in plans for mix in mixes_of(plan)}
    return tuple(run for run in read_runs(store) if run.id in wanted)


def plans_text(gpu: str, plans: Sequence[PlannedRun]) -> str:
    """`plans` as the file that ``python -m advisor.measure runs`` takes."""
    return dumps({"schema": 1, "gpu": gpu, "plans": [asdict(plan) for plan in plans]}, indent=1)


def keep(runs: Sequence[Run], store: Path) -> int:
    """Append those of `runs` that the file `store` lacks; how many were appended.

    If another run there has its id, a run is kept under its id and date.
    """
    there = read_runs(store) if is_file(store) else ()
    ids = {run.id for run in there}
    known = {(run.provenance, run.tenants) for run in there}
    new = [run for run in runs if (run.provenance, run.tenants) not in known]
    for run in new:
        taken = run.id in ids
        append_run(store, replace(run, id=f"{run.id}-{run.provenance.date}") if taken else run)
    return len(new)


def rehearsed(plans: Sequence[PlannedRun], device: str) -> Iterator[PlannedProcess]:
    """Every process that running `plans` would start; starts nothing and needs no GPU.

    Without a GPU, cores and UUID are placeholders.
    """
    from advisor.hardware.host_cores import allowed_cores

    uuid = _uuid(device)
    for plan in plans:
        needed = sum(workload.cores for workload in plan.workloads)
        cores = tuple(range(needed + 1)) if uuid == _SOME_GPU else allowed_cores()
        yield from planned_processes(plan, uuid, cores)


def spelt(process: PlannedProcess) -> str:
    """`process` on a few lines, as ``advisor validate --dry-run`` prints it."""
    cores = ",".join(map(str, process.cores)) or "any"
    lines = [process.role, f"  cores: {cores}"]
    lines += [f"  {name}={value}" for name, value in process.environment.items()]
    lines.append(f"  $ {join(process.command)}" if process.command else "  forked, no command")
    return "\n".join(lines)


_SOME_GPU = "UUID-OF-THE-GPU"


def _uuid(device: str) -> str | None:
    from advisor.measure.device import find_device

    try:
        return find_device(device).uuid
    except GpuUnavailable:
        return _SOME_GPU


_NOISE = (
    "Grey is how far two runs of the same jobs with fresh processes lie apart in the median: "
    "nothing can be predicted better."
)
_SEEN = (
    "The model learnt from the shipped runs: of jobs that it never saw, errors are larger, as "
    "README says."
)


def runs_of_jobs_text(found: MeasuredRuns, gpu: str) -> str:
    """How good predictions of the runs are, what these are, and how good they could be at all."""
    if not found.runs:
        return (
            f"No run in which just these jobs share {with_article(gpu)} was measured. `advisor "
            f"validate` runs the best plans and sets what it measures beside what was predicted."
        )
    inside = sum(job.inside for job in found.jobs)
    own = f", {len(found.own)} of them your own (diamonds)" if found.own else ""
    off = median(abs(job.error) for job in found.jobs)
    said = [
        f"{counted(len(found.runs), 'run')} of some of these jobs{own}; "
        f"{found.same or 'none'} of all of them together. Of {counted(len(found.jobs), 'step')} "
        f"{inside} lie in their 90 % intervals, which the thin lines are; the median is "
        f"{percent(off)} off."
    ]
    said += [_NOISE] if found.noise else []
    said += [_SEEN] if found.shipped else []
    return " ".join(said)


def runs_of_jobs_rows(found: MeasuredRuns) -> list[dict[str, Any]]:
    """A row for each tenant of each run; errors are in per cent of what was measured."""
    return [
        _row(found, run, job, whose)
        for runs, whose in ((found.shipped, "shipped"), (found.own, "your own"))
        for run in runs
        for job in run.jobs
    ]


def _row(found: MeasuredRuns, run: RunComparison, job: JobComparison, whose: str) -> dict[str, Any]:
    mode, step_s = sharing_of(run.run).mode, job.predicted_s
    predicted, interval, measured, _ = step_cells(step_s, job.measured_s)
    noise = found.noise.get(mode)
    return {
        "mode": mode, "job": job.job, "whose": whose,
        "low": 100 * (step_s.p05 / job.measured_s - 1),
        "error": 100 * job.error,
        "high": 100 * (step_s.p95 / job.measured_s - 1),
        "noise": None if noise is None else 100 * noise,
        "run": f"{run.run.id}: {run.run.sharing}",
        "hint": f"{predicted} ms predicted ({interval}), {measured} ms measured",
    }  # fmt: skip
