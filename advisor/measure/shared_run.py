"""One real shared run: new tenants train together until settled, then windows are measured."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import mean
from time import monotonic, time

from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.machine import CONTROL, NOT_METERED, Activity, allowed_cores
from advisor.measure.device import Meter, command_line, find_device, memory_record
from advisor.measure.mps import Bench, MpsDaemon, bench_on, memory_filled, tenant_environments
from advisor.measure.pace import Schedule, Timing, schedule, sleep_until, windows_of
from advisor.measure.process import FOLDER_PREFIX, say, temporary_base
from advisor.measure.profile_command import ABOVE_0, option_number
from advisor.measure.run_list import PlannedRun, read_plans, single_runs
from advisor.measure.tenant import GRACE_S, Answer, Ended, Tenant, setup_of
from advisor.measure.tenants import ask_all, tenants_on
from advisor.sharing import Concurrent, parse_sharing
from advisor.workload.profile import Provenance, Window
from advisor.workload.run import Completion, Run
from advisor.workload.run import Tenant as TenantRecord
from advisor.workload.spec import Workload
from advisor.workload.store import read_runs
from advisor.workload.writing import append_run, new_path, writable

# Between the request to start and the start, in which every tenant receives the request.
_NOTICE_S = 0.1

# For runs that only test whether the tenants fit: some steps each, so that caches have grown.
_TIMING_OF_MEMORY_RUNS = Timing(settle_s=0.0, window_s=0.3, windows=1, lead_s=0.1, longest_s=2.0)


def measure(plan: PlannedRun, bench: Bench, timing: Timing) -> Run:
    """Run `plan`, one of `single_runs`, for real; its tenants float over the cores of `bench`.

    A tenant that runs out of memory or dies is an outcome in the record; the others go on.

    Raises:
        InvalidInput: A workload cannot be built, or the GPU cannot look like that card.
        GpuUnavailable: MPS does not start.
        AdvisorError: MPS is not in the state it should be in, or no tenant starts.
    """
    if plan.steps is not None:
        return _run_to_the_end(plan, bench, timing)
    return _measured(plan, bench, timing)


class SettledTenants:
    """New tenants that have loaded workloads and trained together until settled.

    Attributes:
        clients: Tenants that MPS serves.
        meter: Of their device.
        any_loaded: Whether one of them could load its workload.
        slowest_step_s: The slowest tenant's seconds a step while they settled.
    """

    def __init__(
        self, workloads: Sequence[Workload], sharing: Concurrent, tenants: Sequence[Tenant],
        bench: Bench, settle_s: float,
    ) -> None:  # fmt: skip
        self.tenants = tenants
        self._workloads = workloads
        self._origin, self._cores = bench.origin, bench.cores
        self._loaded = ask_all(tenants, "load", [{}] * len(tenants))
        self.any_loaded = not all(isinstance(each, Ended) for each in self._loaded)
        alive = [tenant.pid for tenant in tenants if tenant.ended is None]
        self.clients = bench.session.proved_clients(sharing, alive)
        start_at = time() + _NOTICE_S
        settled_at = start_at + settle_s
        self.train(start_at, settled_at)
        answers = [each for each in self.answers(settled_at) if isinstance(each, dict)]
        ends = [each["completed_at"] for each in answers]
        self.slowest_step_s = max(((at[-1] - start_at) / len(at) for at in ends), default=0.0)
        self.meter = Meter(bench.session.device)
        self._checked = self._check_hosts()

    def train(self, start_at: float, stop_at: float) -> None:
        """Make all train from one moment to another."""
        for tenant in self.tenants:
            tenant.send("run", start_at=start_at, stop_at=stop_at)

    def answers(self, stop_at: float) -> list[Answer]:
        """The answers of all, which train until `stop_at`."""
        return [tenant.receive(max(0.0, stop_at - time()) + GRACE_S) for tenant in self.tenants]

    def _check_hosts(self) -> tuple[Answer, ...]:
        """The host checks of all at once, since busy cores slow each other."""
        return ask_all(self.tenants, "check_host", [{}] * len(self.tenants))

    def records(
        self, answers: Sequence[Answer], windows: Iterable[tuple[Window, ...]]
    ) -> Iterator[TenantRecord]:
        """Yield the records of the tenants by `answers`, after checking their hosts once more."""
        checks, held_mib = self._check_hosts(), self.meter.memory_mib()
        for workload, tenant, loaded, answer, before, after, its in zip(
            self._workloads, self.tenants, self._loaded, answers, self._checked, checks, windows,
            strict=True,
        ):  # fmt: skip
            answers_s = [each["check_s"] for each in (before, after) if isinstance(each, dict)]
            checks_s = [each for each in answers_s if each is not None]
            ended = answer if isinstance(answer, Ended) else None
            reported = [each["memory"] for each in (answer, loaded) if isinstance(each, dict)]
            memory = memory_record(reported[0], held_mib.get(tenant.pid)) if reported else None
            yield TenantRecord(
                workload=workload,
                outcome=ended.outcome if ended else "ok",
                detail=ended.detail if ended else None,
                windows=its,
                memory=memory,
                cores=self._cores,
                sms=None if isinstance(loaded, Ended) else loaded["sms"],
                host_check_s=mean(checks_s) if len(checks_s) == 2 else None,
            )

    def provenance(self, name: str, clocks_mhz: tuple[int | None, int | None]) -> Provenance:
        """Return the provenance of the run called `name`, which ended now."""
        versions = next((tenant.versions for tenant in self.tenants if tenant.versions), None)
        if versions is None:
            ended = self.tenants[0].ended
            detail = ended.detail if ended else "no tenant answered"
            raise AdvisorError(f"run {name}: no tenant starts: {detail}. Does torch import here?")
        return self._origin.provenance(versions, clocks_mhz)


def _measured(plan: PlannedRun, bench: Bench, timing: Timing) -> Run:
    """Run `plan` for real in windows."""
    session, ((_, sharing),) = bench.session, plan.groups
    session.switch_to(sharing)
    setups = session.setups(sharing, plan.workloads)
    if plan.capacity_mib is not None:
        timing = _TIMING_OF_MEMORY_RUNS
    with (
        memory_filled(session, plan.capacity_mib) as free_mib,
        tenants_on(setups, session.folder, bench.crew.take) as tenants,
    ):
        settled = SettledTenants(plan.workloads, sharing, tenants, bench, timing.settle_s)
        times = schedule(time() + _NOTICE_S, timing, settled.slowest_step_s)
        settled.train(times.start_at, times.stop_at)
        activity = NOT_METERED
        clocks_mhz: tuple[int | None, int | None] = (None, None)
        if settled.any_loaded:  # activity over exactly the windows, and clocks at their end
            sleep_until(times.begin_at)
            settled.meter.begin()
            sleep_until(times.end_at)
            activity, clocks_mhz = settled.meter.end(), settled.meter.clocks_mhz()
        answers = settled.answers(times.stop_at)
        # Now, as the next run has its windows when these have imported torch, given enough cores.
        waiting = 2 * sum(setup.line is not None for setup in setups)
        if 2 * waiting <= len(bench.cores):
            bench.crew.prepare(waiting)
        windows = [
            () if isinstance(each, Ended) else windows_of(times, each["completed_at"])
            for each in answers
        ]
        run = Run(
            id=plan.id,
            gpu=session.device.key,
            sharing=str(sharing),
            purpose=plan.purpose,
            repeats=plan.repeats,
            tenants=tuple(settled.records(answers, windows)),
            mps_clients=settled.clients,
            power_w=activity.power_w,
            counters=activity.counters,
            provenance=settled.provenance(plan.id, clocks_mhz),
            capacity_mib=plan.capacity_mib,
            free_mib=free_mib,
        )
    if not run.ok:
        session.close()  # a client that dies can leave an MPS server that accepts no new clients
    return run


# A tenant that has not done its steps by then hangs.
_LONGEST_S = 900.0

# When clocks are read: the GPU is busy, and no job has ended.
_UNDER_WAY_S = 0.5


def _run_to_the_end(plan: PlannedRun, bench: Bench, timing: Timing) -> Run:
    """Run `plan` for real, each tenant until it has done its steps.

    A tenant that has done its steps idles until the last of its group has: its context stays, and
    uses no SM. Groups run one after another, each with new tenants. The time in which these start
    and load does not count; the time to start or stop MPS for them does.
    """
    session, steps = bench.session, plan.steps or ()
    records: dict[int, TenantRecord] = {}
    began_s: dict[int, float] = {}
    ended_s: dict[int, float | None] = {}
    pauses_s: list[float] = []
    activities: list[Activity] = []
    provenances: list[Provenance] = []
    clients, clock_s = 0, 0.0
    for jobs, sharing in plan.groups:
        switched = monotonic()
        session.switch_to(sharing)
        if records:  # the clock starts with the first group
            pauses_s.append(monotonic() - switched)
            clock_s += pauses_s[-1]
        workloads = [plan.workloads[job] for job in jobs]
        setups = session.setups(sharing, workloads)
        with tenants_on(setups, session.folder, bench.crew.take) as tenants:
            settled = SettledTenants(workloads, sharing, tenants, bench, timing.settle_s)
            start_at = time() + _NOTICE_S
            answers, activity, clocks_mhz = _train_steps(
                settled, start_at, [steps[job] for job in jobs]
            )
            took_s = [
                None if isinstance(each, Ended) else float(each["completed_at"][-1] - start_at)
                for each in answers
            ]
            windows = _windows(answers, start_at, took_s)
            records |= zip(jobs, settled.records(answers, windows), strict=True)
            provenances.append(settled.provenance(plan.id, clocks_mhz))
        if None in took_s:
            session.close()  # a client that dies can leave an MPS server that accepts no clients
        clients += settled.clients
        activities.append(activity)
        began_s |= dict.fromkeys(jobs, clock_s)
        for job, seconds in zip(jobs, took_s, strict=True):
            ended_s[job] = None if seconds is None else clock_s + seconds
        clock_s += max((each for each in took_s if each is not None), default=0.0)
    energies_j = [each.energy_j for each in activities if each.energy_j is not None]
    energy_j = fsum(energies_j) if len(energies_j) == len(activities) else None
    in_order = sorted(records)
    return Run(
        id=plan.id,
        gpu=session.device.key,
        sharing=str(parse_sharing(plan.sharing)),
        purpose=plan.purpose,
        repeats=None,
        tenants=tuple(records[job] for job in in_order),
        mps_clients=clients,
        power_w=None if energy_j is None else energy_j / fsum(each.seconds for each in activities),
        counters=activities[0].counters if len(activities) == 1 else None,
        provenance=provenances[0],
        completion=Completion(
            steps=steps,
            began_s=tuple(began_s[job] for job in in_order),
            ended_s=tuple(ended_s[job] for job in in_order),
            pauses_s=tuple(pauses_s),
            energy_j=energy_j,
        ),
    )


def _train_steps(
    settled: SettledTenants, start_at: float, steps: Sequence[int]
) -> tuple[list[Answer], Activity, tuple[int | None, int | None]]:
    """Train each tenant for its number of steps; the answers, the activity, and the clocks."""
    for tenant, count in zip(settled.tenants, steps, strict=True):
        tenant.send("run_steps", start_at=start_at, steps=count)
    sleep_until(start_at)
    settled.meter.begin()
    sleep_until(start_at + _UNDER_WAY_S)
    clocks_mhz = settled.meter.clocks_mhz()
    until = start_at + _LONGEST_S
    answers = [tenant.receive(max(0.0, until - time())) for tenant in settled.tenants]
    return answers, settled.meter.end(), clocks_mhz


def _windows(
    answers: Sequence[Answer], start_at: float, ended_s: Sequence[float | None]
) -> Iterator[tuple[Window, ...]]:
    """Each tenant's steps in each stretch of time in which the same tenants ran."""
    ends_s = sorted({each for each in ended_s if each is not None})
    for answer, own_s in zip(answers, ended_s, strict=True):
        if isinstance(answer, Ended) or own_s is None:
            yield ()
        else:
            bounds_s = (0.0, *(each for each in ends_s if each <= own_s))
            yield windows_of(Schedule(start_at, bounds_s), answer["completed_at"])


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process that a plan would start.

    Attributes:
        environment: Variables set for it, in addition to the caller's without ``CUDA_MPS_...``.
        command: Words of its command.
    """

    role: str
    environment: Mapping[str, str]
    command: tuple[str, ...]


def planned_processes(plan: PlannedRun, uuid: str | None) -> tuple[PlannedProcess, ...]:
    """Return the processes of `plan` on the GPU `uuid`, or on a CPU, as they start."""
    folder = temporary_base() / (FOLDER_PREFIX + "XXXXXXXX")
    command = ("advisor", "runs", "plans.json", "--device", uuid or "cpu")
    processes = []
    groups = [(run, *group) for run in single_runs(plan) for group in run.groups]
    for run, jobs, sharing in groups:
        workloads = [run.workloads[job] for job in jobs]
        role = f"{run.id}: supervisor, starts, watches and ends all others"
        processes.append(PlannedProcess(role, {}, command))
        if uuid is not None and sharing.under_mps:
            environment = MpsDaemon(folder, uuid).environment
            processes.append(PlannedProcess(f"{run.id}: MPS daemon", environment, (CONTROL, "-f")))
        environments = tenant_environments(sharing, len(jobs), folder, uuid)
        tenants = zip(workloads, environments, strict=True)
        for number, (workload, variables) in enumerate(tenants, start=1):
            role = f"{run.id}: tenant {number}, trains {workload.name}"
            setup = setup_of(workload, "cpu" if uuid is None else "cuda", variables)
            processes.append(PlannedProcess(role, variables, setup.script.command))
    return tuple(processes)


# Assumed seconds of a run before the first has been measured.
FIRST_RUN_S = 15.0


def run_list(argv: Sequence[str]) -> int:
    """Run the plans that the command line `argv` names; return the exit code."""
    words = _parser().parse_args(argv)
    timing = Timing(words.settle, words.window, words.windows)
    device = find_device(words.device)
    writable(words.out)
    plans = read_plans(words.plans, device.key)
    planned = [run for plan in plans for run in single_runs(plan)]
    done = {run.id for run in read_runs(words.out)} if words.out.exists() else set()
    todo = [plan for plan in planned if plan.id not in done]
    if len(todo) < len(planned) and not words.resume:
        raise InvalidInput(
            f"{words.out}: has {len(planned) - len(todo)} of these runs already. Add --resume to "
            f"do only the others, or choose another --out."
        )
    command = command_line("runs", argv)
    with bench_on(device, allowed_cores(words.cores), command) as bench:
        began, run_s = monotonic(), FIRST_RUN_S
        for number, plan in enumerate(todo, start=1):
            run_began = monotonic()
            if words.deadline is not None and run_began - began + run_s > words.deadline:
                left = counted(len(todo) - number + 1, "run")
                say(f"{left} left at the deadline; --resume does them")
                break
            run = measure(plan, bench, timing)
            append_run(words.out, run)
            run_s = (monotonic() - began) / number  # so far on average
            say(
                f"{number}/{len(todo)} {run_summary(run)} {monotonic() - run_began:.1f} s; "
                f"about {run_s * (len(todo) - number):.0f} s left"
            )
    return 0


def run_summary(run: Run) -> str:
    """`run` in one line: its id, its sharing and how its tenants ended."""
    failed = [tenant for tenant in run.tenants if tenant.outcome != "ok"]
    outcome = f"{failed[0].outcome} ({failed[0].detail})" if failed else "ok"
    return f"{run.id} {run.sharing} x{len(run.tenants)}, {outcome},"


_SECONDS = option_number(float, lambda value: 0 <= value <= 3600, "between 0 and 3600 seconds")
_COUNT = option_number(int, lambda value: 1 <= value <= 100, "between 1 and 100")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor runs",
        description="Runs plans for real, together on one GPU, and records what each job did.",
    )
    add = parser.add_argument
    add("plans", type=Path, help="JSON file of plans, or what `advisor recommend --json` printed "
        "(plans on MIG are left out)")  # fmt: skip
    add(
        "--device",
        default=DEFAULT_DEVICE,
        help="GPU index or UUID, or cpu to try out [%(default)s]",
    )
    add("--out", type=new_path, required=True, help="JSON Lines file to which runs are added")
    add("--cores", help="host cores for all processes, e.g. 0-15 [all]")
    add("--settle", type=_SECONDS, default=0.7, help="seconds of training before windows [0.7]")
    add("--window", type=ABOVE_0, default=1.0, help="seconds of a window, at least [1.0]")
    add("--windows", type=_COUNT, default=3, help="windows of a run [3]")
    add("--resume", action="store_true", help="skip runs that --out has already")
    add("--deadline", type=ABOVE_0, help="begin no run that would end after these seconds")
    return parser
