"""Runs plans for seconds each, one after another on a GPU here, or at once on a Ray cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from shlex import join

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.measure.campaign import Dispatcher, Ledger
from advisor.measure.device import find_device
from advisor.measure.planned_runs import Campaign, PlannedRun, single_runs
from advisor.measure.process import INTERRUPTED, scratch_folder, supervise
from advisor.measure.runners import RunnerSettings, cluster_runners
from advisor.measure.shared_run import PlannedProcess, planned_processes
from advisor.measure.tenant import error_of
from advisor.workload.reading import user_folder
from advisor.workload.run import Run
from advisor.workload.store import read_runs
from advisor.workload.writing import write_whole


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
        code = supervise("advisor.measure.shared_run:run_list", [dumps(options)])
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


_SOME_GPU = "UUID-OF-THE-GPU"


def planned_on(plans: Sequence[PlannedRun], device: str) -> Iterator[PlannedProcess]:
    """Return every process that running `plans` would start; cores and UUID may be placeholders."""
    try:
        uuid = find_device(device).uuid
    except GpuUnavailable:
        uuid = _SOME_GPU
    for plan in plans:
        yield from planned_processes(plan, uuid)


def process_text(process: PlannedProcess) -> str:
    """Return `process` on a few lines, as ``advisor validate --dry-run`` prints it."""
    variables = [f"  {name}={value}" for name, value in process.environment.items()]
    return "\n".join([process.role, *variables, f"  $ {join(process.command)}"])
