"""One real shared run: new tenants train together until settled, then windows are measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import mean
from time import monotonic, time

from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.files.records import parse_record
from advisor.files.writing import append_record, writable
from advisor.hardware.machine import CONTROL, NOT_METERED, Activity, Provenance, allowed_cores
from advisor.measure.bench import (
    Bench,
    ask_all,
    bench_on,
    daemon_variables,
    memory_filled,
    receive_all,
    send_all,
    tenant_environments,
    tenants_on,
)
from advisor.measure.device import Clocks, Meter, command_line, find_device, memory_record
from advisor.measure.one_loader import sharing_one, with_loader
from advisor.measure.pace import Schedule, schedule, sleep_until, windows_of
from advisor.measure.planned_runs import PlannedRun, Timing, read_plans, single_runs
from advisor.measure.process import FOLDER_PREFIX, say, temporary_base
from advisor.measure.tenant import GRACE_S, Answer, Ended, Tenant, setup_of
from advisor.sharing import Concurrent, parse_sharing
from advisor.workload.run import Completion, Run
from advisor.workload.run import Tenant as TenantRecord
from advisor.workload.spec import Workload
from advisor.workload.store import read_runs

# Between the request to start and the start, in which every tenant receives the request.
_NOTICE_S = 0.1

# For runs that only test whether the tenants fit: some steps each, so that caches have grown.
_TIMING_OF_MEMORY_RUNS = Timing(settle_s=0.0, window_s=0.3, windows=1, lead_s=0.1, longest_s=2.0)


def measure(plan: PlannedRun, bench: Bench, timing: Timing) -> Run:
    """Run `plan`, one of `single_runs`, for real; its tenants float over the cores of `bench`.

    A tenant that runs out of memory or fails is an outcome in the record; the others go on.

    If the plan has steps, each tenant trains until it has done its own, and then idles until the
    last of its group has: its context stays, and uses no SM. Groups run one after another, each
    with new tenants. The time in which these start and load does not count; the time to start or
    stop MPS for them does.

    Raises:
        InvalidInput: A workload cannot be built, or the GPU cannot look like that card.
        GpuUnavailable: MPS does not start.
        AdvisorError: MPS is not in the state it should be in, or no tenant starts.
    """
    groups: list[_Group] = []
    pauses_s: list[float] = []
    done: dict[int, tuple[TenantRecord, float, float | None]] = {}
    clock_s = 0.0
    for jobs, sharing in plan.groups:
        switched = monotonic()
        bench.session.switch_to(sharing)
        if groups:  # the clock starts with the first group
            pauses_s.append(monotonic() - switched)
            clock_s += pauses_s[-1]
        group = _measure_group(plan, jobs, sharing, bench, timing)
        if any(tenant.outcome != "ok" for tenant in group.tenants):
            # A client that is killed can leave an MPS server that accepts no new clients.
            bench.session.close()
        groups.append(group)
        for job, tenant, seconds in zip(jobs, group.tenants, group.took_s, strict=True):
            done[job] = tenant, clock_s, None if seconds is None else clock_s + seconds
        clock_s += max((each for each in group.took_s if each is not None), default=0.0)
    energies_j = [group.activity.energy_j for group in groups]
    metered_j = [each for each in energies_j if each is not None]
    energy_j = fsum(metered_j) if len(metered_j) == len(groups) else None
    seconds = fsum(group.activity.seconds for group in groups)
    in_order = [done[job] for job in sorted(done)]
    completion = None
    if plan.steps is not None:
        completion = Completion(
            steps=plan.steps,
            began_s=tuple(began_s for _, began_s, _ in in_order),
            ended_s=tuple(ended_s for _, _, ended_s in in_order),
            pauses_s=tuple(pauses_s),
            energy_j=energy_j,
        )
    return Run(
        id=plan.id,
        gpu=bench.session.device.key,
        sharing=str(parse_sharing(plan.sharing)),
        purpose=plan.purpose,
        repeats=plan.repeats,
        tenants=tuple(tenant for tenant, _, _ in in_order),
        mps_clients=sum(group.clients for group in groups),
        power_w=None if energy_j is None else energy_j / seconds,
        counters=groups[0].activity.counters if len(groups) == 1 else None,
        provenance=groups[0].provenance,
        capacity_mib=plan.capacity_mib,
        free_mib=groups[0].free_mib,
        completion=completion,
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Tenants that trained at the same time; `took_s` ends with their last steps that count."""

    tenants: tuple[TenantRecord, ...]
    took_s: tuple[float | None, ...]
    activity: Activity
    clients: int
    provenance: Provenance
    free_mib: float | None


def _measure_group(
    plan: PlannedRun, jobs: Sequence[int], sharing: Concurrent, bench: Bench, timing: Timing
) -> _Group:
    session, workloads = bench.session, [plan.workloads[job] for job in jobs]
    setups = session.setups(sharing, workloads)
    if plan.capacity_mib is not None:
        timing = _TIMING_OF_MEMORY_RUNS
    with (
        memory_filled(session, plan.capacity_mib) as free_mib,
        with_loader(setups, workloads, session.folder) as own_setups,
        tenants_on(own_setups, session.folder, bench.crew.take) as tenants,
    ):
        loaded = ask_all(tenants, "load")
        alive = [tenant.pid for tenant in tenants if tenant.ended is None]
        clients = session.proved_clients(sharing, alive)
        start_at = time() + _NOTICE_S
        stop_at = start_at + timing.settle_s
        settled = ask_all(
            tenants, "run", timing.settle_s + GRACE_S, start_at=start_at, stop_at=stop_at
        )
        ends = [each["completed_at"] for each in settled if isinstance(each, dict)]
        slowest_step_s = max(((at[-1] - start_at) / len(at) for at in ends), default=0.0)
        meter = Meter(session.device)
        before = ask_all(tenants, "check_host")  # at once: busy cores slow each other
        if plan.steps is not None:
            steps = [plan.steps[job] for job in jobs]
            answers, schedules, activity, clocks_mhz = _train_steps(tenants, steps, meter)
        else:
            times = schedule(time() + _NOTICE_S, timing, slowest_step_s)
            schedules = [times] * len(jobs)
            answers, activity, clocks_mhz = _train_windows(tenants, times, meter if alive else None)
            # Now, as the next run has its windows when these have imported torch.
            waiting = 2 * sum(setup.line is not None for setup in setups)
            if 2 * waiting <= len(bench.cores):  # else they would slow it
                bench.crew.prepare(waiting)
        after, held_mib = ask_all(tenants, "check_host"), meter.memory_mib()
        versions = next((tenant.versions for tenant in tenants if tenant.versions), None)
    if versions is None:
        ended = tenants[0].ended
        detail = ended.detail if ended else "no tenant answered"
        raise AdvisorError(f"run {plan.id}: no tenant starts: {detail}. Does torch import here?")
    reports = zip(answers, loaded, zip(before, after, strict=True), schedules, strict=True)
    records = tuple(
        _tenant_record(workload, bench.cores, held_mib.get(tenant.pid), *report)
        for workload, tenant, report in zip(workloads, tenants, reports, strict=True)
    )
    took_s = tuple(
        None if isinstance(answer, Ended) else times.bounds_s[-1]
        for answer, times in zip(answers, schedules, strict=True)
    )
    provenance = bench.origin.provenance(versions, clocks_mhz)
    return _Group(records, took_s, activity, clients, provenance, free_mib)


def _tenant_record(
    workload: Workload,
    cores: tuple[int, ...],
    held_mib: float | None,
    answer: Answer,
    loaded: Answer,
    checks: tuple[Answer, Answer],
    times: Schedule,
) -> TenantRecord:
    ended = answer if isinstance(answer, Ended) else None
    reported = [each["memory"] for each in (answer, loaded) if isinstance(each, dict)]
    checks_s = [each["check_s"] for each in checks if isinstance(each, dict)]
    return TenantRecord(
        workload=workload,
        outcome=ended.outcome if ended else "ok",
        detail=ended.detail if ended else None,
        windows=() if isinstance(answer, Ended) else windows_of(times, answer["completed_at"]),
        memory=memory_record(reported[0], held_mib) if reported else None,
        cores=cores,
        sms=None if isinstance(loaded, Ended) else loaded["sms"],
        host_check_s=mean(checks_s) if len(checks_s) == 2 and None not in checks_s else None,
    )


def _train_windows(
    tenants: Sequence[Tenant], times: Schedule, meter: Meter | None
) -> tuple[Sequence[Answer], Activity, Clocks]:
    send_all(tenants, "run", start_at=times.start_at, stop_at=times.stop_at)
    activity = NOT_METERED
    clocks_mhz: Clocks = (None, None)
    if meter is not None:
        sleep_until(times.begin_at)
        meter.begin()
        sleep_until(times.end_at)
        activity, clocks_mhz = meter.end(), meter.clocks_mhz()
    left_s = max(0.0, times.stop_at - time())
    return receive_all(tenants, left_s + GRACE_S), activity, clocks_mhz


def _train_steps(
    tenants: Sequence[Tenant], steps: Sequence[int], meter: Meter
) -> tuple[Sequence[Answer], list[Schedule], Activity, Clocks]:
    """Train each for its number of steps; its windows are cut where one of the others ends."""
    start_at = time() + _NOTICE_S
    for tenant, count in zip(tenants, steps, strict=True):
        tenant.send("run_steps", start_at=start_at, steps=count)
    sleep_until(start_at)
    meter.begin()
    sleep_until(start_at + 0.5)  # when the GPU is busy, and no job has ended
    clocks_mhz = meter.clocks_mhz()
    answers = receive_all(tenants, 900.0)  # one that has not done its steps by then hangs
    activity = meter.end()
    ends_s = [
        0.0 if isinstance(each, Ended) else float(each["completed_at"][-1] - start_at)
        for each in answers
    ]
    cuts_s = sorted({0.0, *ends_s})
    schedules = [
        Schedule(start_at, tuple(cut_s for cut_s in cuts_s if cut_s <= end_s)) for end_s in ends_s
    ]
    return answers, schedules, activity, clocks_mhz


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process that a plan would start.

    Its `environment` is set in addition to the caller's without ``CUDA_MPS_...``.
    """

    role: str
    environment: Mapping[str, str]
    command: tuple[str, ...]


def planned_processes(plan: PlannedRun, uuid: str | None) -> Iterator[PlannedProcess]:
    """Yield the processes of `plan` on the GPU `uuid`, or on a CPU, as they start."""
    folder = temporary_base() / (FOLDER_PREFIX + "XXXXXXXX")
    command = ("advisor", "runs", "plans.json", "--device", uuid or "cpu")
    groups = [(run, *group) for run in single_runs(plan) for group in run.groups]
    for run, jobs, sharing in groups:
        role = f"{run.id}: supervisor, starts, watches and ends all others"
        yield PlannedProcess(role, {}, command)
        if uuid is not None and sharing.under_mps:
            variables = daemon_variables(folder, uuid)
            yield PlannedProcess(f"{run.id}: MPS daemon", variables, (CONTROL, "-f"))
        workloads = [run.workloads[job] for job in jobs]
        environments = tenant_environments(sharing, len(jobs), folder, uuid)
        setups = [
            setup_of(workload, "cpu" if uuid is None else "cuda", variables)
            for workload, variables in zip(workloads, environments, strict=True)
        ]
        own, loader = sharing_one(setups, workloads, folder / "loader")
        if loader is not None:
            role = f"{run.id}: data loader of its tenants"
            yield PlannedProcess(role, loader.environment, loader.script.command)
        for number, (setup, workload) in enumerate(zip(own, workloads, strict=True), start=1):
            role = f"{run.id}: tenant {number}, trains {workload.name}"
            yield PlannedProcess(role, setup.environment, setup.script.command)


# Assumed seconds of a run before the first has been measured.
FIRST_RUN_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunOptions:
    words: tuple[str, ...] = ()
    plans: Path
    out: Path
    device: str
    cores: str | None = None
    settle_s: float = Timing().settle_s
    window_s: float = Timing().window_s
    windows: int = Timing().windows
    skip_existing: bool = False
    deadline: float | None = None


def run_list(document: str) -> int:
    """Run the plans that the JSON `document` of options names; return the exit code."""
    words = parse_record(_RunOptions, document, "the command")
    timing = Timing(words.settle_s, words.window_s, words.windows)
    device = find_device(words.device)
    writable(words.out)
    plans = read_plans(words.plans, device.key)
    planned = [run for plan in plans for run in single_runs(plan)]
    done = {run.id for run in read_runs(words.out)} if words.out.exists() else set()
    todo = [plan for plan in planned if plan.id not in done]
    if len(todo) < len(planned) and not words.skip_existing:
        raise InvalidInput(
            f"{words.out}: it contains {len(planned) - len(todo)} of these runs already. Add "
            "--skip-existing to run only the others, or choose another --out."
        )
    command = command_line("runs", words.words)
    with bench_on(device, allowed_cores(words.cores), command) as bench:
        began, run_s = monotonic(), FIRST_RUN_S
        for number, plan in enumerate(todo, start=1):
            run_began = monotonic()
            if words.deadline is not None and run_began - began + run_s > words.deadline:
                left = counted(len(todo) - number + 1, "run")
                say(f"{left} left at the deadline; --skip-existing does them")
                break
            run = measure(plan, bench, timing)
            append_record(words.out, run)
            run_s = (monotonic() - began) / number  # so far on average
            say(
                f"{number}/{len(todo)} {run_summary(run)} {monotonic() - run_began:.1f} s; "
                f"about {run_s * (len(todo) - number):.0f} s left"
            )
    return 0


def run_summary(run: Run) -> str:
    """Return `run` in one line: its id, its sharing and how its tenants ended."""
    failed = [tenant for tenant in run.tenants if tenant.outcome != "ok"]
    outcome = f"{failed[0].outcome} ({failed[0].detail})" if failed else "ok"
    return f"{run.id} {run.sharing} x{len(run.tenants)}, {outcome},"
