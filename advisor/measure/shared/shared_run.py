"""One real shared run: fresh tenants, a rehearsal, then the windows in which all of them run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time

from advisor.hardware.gpu_state import Activity
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.memory_filler import ballast_on
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.provenance import Origin
from advisor.measure.process.tenants import Ended, TenantProcess, ask_all, tenants_on
from advisor.measure.process.windows import Schedule, Timing, schedule, windows_of
from advisor.measure.shared.planned_run import PlannedMix
from advisor.measure.shared.together import (
    NOTICE_S,
    Said,
    all_said,
    check_hosts,
    patience_s,
    rehearse,
    seats_for,
    sleep_until,
    tell,
    versions_of,
)
from advisor.workload.run import Run, Tenant
from advisor.workload.spec import Workload

# Of a run that asks only whether its tenants fit: some steps each, so that caches have grown.
_WHETHER_IT_FITS = Timing(settle_s=0.0, window_s=0.3, windows=1, lead_s=0.1, longest_s=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRunSetup:
    """What is the same for all runs of a campaign.

    Attributes:
        stage: The device, with or without MPS.
        timing: How long to look.
        command: What the user typed.
        cores: All host cores that this process may use, tenants' or not.
    """

    stage: MpsSession
    timing: Timing
    command: str
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Course:
    """How the measuring went.

    Attributes:
        said: By each tenant, shape (tenants,).
    """

    clients: int
    plan: Schedule
    said: tuple[Said, ...]
    activity: Activity | None
    clocks_mhz: tuple[int | None, int | None]


def measure(mix: PlannedMix, cores: Sequence[tuple[int, ...]], setting: SharedRunSetup) -> Run:
    """Run `mix` for real, its tenants on `cores`.

    A tenant that runs out of memory or dies is an outcome in the record; the others go on.

    Raises:
        InvalidInput: A workload cannot be built, or the GPU cannot look like the card asked for.
        GpuUnavailable: MPS does not start.
        AdvisorError: MPS is not in the state it should be in.
    """
    stage = setting.stage
    stage.set_for(mix.sharing)
    seats = seats_for(mix.sharing, cores, stage)
    if mix.capacity_mib is not None:
        setting = replace(setting, timing=_WHETHER_IT_FITS)
    with (
        ballast_on(stage, mix.capacity_mib) as free_mib,
        tenants_on(seats, stage.folder) as tenants,
    ):
        course = _course(mix, tenants, setting)
        run = _record(mix, tenants, course, setting, free_mib)
    if not run.ok:
        stage.close()  # a client that dies can leave an MPS server that serves nobody anew
    return run


def _course(mix: PlannedMix, tenants: Sequence[TenantProcess], setting: SharedRunSetup) -> _Course:
    workloads = [{"workload": workload} for workload in mix.workloads]
    loaded = ask_all(tenants, "load", workloads)
    alive = [tenant.pid for tenant in tenants if tenant.ended is None]
    clients = setting.stage.proved_clients(mix.sharing, alive)
    slowest_step_s = rehearse(tenants, setting.timing.settle_s)
    meter = Meter(setting.stage.device)
    checked = check_hosts(tenants)
    plan = schedule(time() + NOTICE_S, setting.timing, slowest_step_s)
    tell(tenants, plan.start_at, plan.stop_at)
    activity, clocks_mhz = _watch(meter, plan) if alive else (None, (None, None))
    answers = [tenant.receive(patience_s(plan.stop_at)) for tenant in tenants]
    said = all_said(tenants, loaded, checked, answers, meter)
    return _Course(clients, plan, said, activity, clocks_mhz)


def _watch(meter: Meter, plan: Schedule) -> tuple[Activity | None, tuple[int | None, int | None]]:
    """What the device does over exactly the windows, and its clocks while they last."""
    sleep_until(plan.begin_at)
    meter.begin()
    sleep_until(plan.end_at)
    activity = meter.end()
    return activity, meter.clocks_mhz()


def _record(
    mix: PlannedMix,
    tenants: Sequence[TenantProcess],
    course: _Course,
    setting: SharedRunSetup,
    free_mib: float | None,
) -> Run:
    versions = versions_of(tenants, mix.id)
    device, activity = setting.stage.device, course.activity
    origin = Origin(device, setting.command, len(setting.cores))
    return Run(
        id=mix.id,
        gpu=device.key,
        sharing=str(mix.sharing),
        purpose=mix.purpose,
        repeats=mix.repeats,
        tenants=tuple(
            _tenant(*each, course.plan)
            for each in zip(mix.workloads, tenants, course.said, strict=True)
        ),
        mps_clients=course.clients,
        power_w=activity.power_w if activity else None,
        counters=activity.counters if activity else None,
        provenance=origin.provenance(versions, course.clocks_mhz),
        capacity_mib=mix.capacity_mib,
        free_mib=free_mib,
    )


def _tenant(workload: Workload, tenant: TenantProcess, said: Said, plan: Schedule) -> Tenant:
    if isinstance(said.answer, Ended):
        return said.record(workload, tenant, ())
    return said.record(workload, tenant, windows_of(plan, said.answer["completed_at"]))
