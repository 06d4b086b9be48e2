"""One real shared run: new tenants train together until settled, then windows are measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time

from advisor.hardware.gpu_state import Activity
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.memory_filler import memory_filled
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.provenance import Origin
from advisor.measure.process.tenants import Ended, TenantProcess, ask_all, tenants_on
from advisor.measure.process.windows import Schedule, Timing, schedule, sleep_until, windows_of
from advisor.measure.shared.planned_run import PlannedMix
from advisor.measure.shared.together import (
    NOTICE_S,
    TenantReport,
    answer_timeout_s,
    check_hosts,
    start_training,
    tenant_reports,
    train_together,
    versions_of,
)
from advisor.workload.run import Run, Tenant
from advisor.workload.spec import Workload

# For runs that only test whether the tenants fit: some steps each, so that caches have grown.
_TIMING_OF_MEMORY_RUNS = Timing(settle_s=0.0, window_s=0.3, windows=1, lead_s=0.1, longest_s=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRunSettings:
    """Settings that all runs of a command share.

    Attributes:
        session: Of the device, with or without MPS.
        timing: How long to measure.
        command: The user's command line.
        cores: All host cores that this process may use, tenants' or not.
    """

    session: MpsSession
    timing: Timing
    command: str
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Measurement:
    """What was measured in one run.

    Attributes:
        reports: Of each tenant, shape (tenants,).
    """

    clients: int
    plan: Schedule
    reports: tuple[TenantReport, ...]
    activity: Activity | None
    clocks_mhz: tuple[int | None, int | None]


def measure(mix: PlannedMix, cores: Sequence[tuple[int, ...]], settings: SharedRunSettings) -> Run:
    """Run `mix` for real, its tenants on `cores`.

    A tenant that runs out of memory or dies is an outcome in the record; the others go on.

    Raises:
        InvalidInput: A workload cannot be built, or the GPU cannot look like the card asked for.
        GpuUnavailable: MPS does not start.
        AdvisorError: MPS is not in the state it should be in.
    """
    session = settings.session
    session.switch_to(mix.sharing)
    setups = session.setups(mix.sharing, cores)
    if mix.capacity_mib is not None:
        settings = replace(settings, timing=_TIMING_OF_MEMORY_RUNS)
    with (
        memory_filled(session, mix.capacity_mib) as free_mib,
        tenants_on(setups, session.folder) as tenants,
    ):
        measurement = _measured_together(mix, tenants, settings)
        run = _record(mix, tenants, measurement, settings, free_mib)
    if not run.ok:
        session.close()  # a client that dies can leave an MPS server that accepts no new clients
    return run


def _measured_together(
    mix: PlannedMix, tenants: Sequence[TenantProcess], settings: SharedRunSettings
) -> _Measurement:
    workloads = [{"workload": workload} for workload in mix.workloads]
    loaded = ask_all(tenants, "load", workloads)
    alive = [tenant.pid for tenant in tenants if tenant.ended is None]
    clients = settings.session.proved_clients(mix.sharing, alive)
    slowest_step_s = train_together(tenants, settings.timing.settle_s)
    meter = Meter(settings.session.device)
    checked = check_hosts(tenants)
    plan = schedule(time() + NOTICE_S, settings.timing, slowest_step_s)
    start_training(tenants, plan.start_at, plan.stop_at)
    activity, clocks_mhz = _watch(meter, plan) if alive else (None, (None, None))
    answers = [tenant.receive(answer_timeout_s(plan.stop_at)) for tenant in tenants]
    reports = tenant_reports(tenants, loaded, checked, answers, meter)
    return _Measurement(clients, plan, reports, activity, clocks_mhz)


def _watch(meter: Meter, plan: Schedule) -> tuple[Activity | None, tuple[int | None, int | None]]:
    """Activity of the device over exactly the windows, and its clocks at their end."""
    sleep_until(plan.begin_at)
    meter.begin()
    sleep_until(plan.end_at)
    activity = meter.end()
    return activity, meter.clocks_mhz()


def _record(
    mix: PlannedMix,
    tenants: Sequence[TenantProcess],
    measurement: _Measurement,
    settings: SharedRunSettings,
    free_mib: float | None,
) -> Run:
    versions = versions_of(tenants, mix.id)
    device, activity = settings.session.device, measurement.activity
    origin = Origin(device, settings.command, len(settings.cores))
    return Run(
        id=mix.id,
        gpu=device.key,
        sharing=str(mix.sharing),
        purpose=mix.purpose,
        repeats=mix.repeats,
        tenants=tuple(
            _tenant(*each, measurement.plan)
            for each in zip(mix.workloads, tenants, measurement.reports, strict=True)
        ),
        mps_clients=measurement.clients,
        power_w=activity.power_w if activity else None,
        counters=activity.counters if activity else None,
        provenance=origin.provenance(versions, measurement.clocks_mhz),
        capacity_mib=mix.capacity_mib,
        free_mib=free_mib,
    )


def _tenant(
    workload: Workload, tenant: TenantProcess, reports: TenantReport, plan: Schedule
) -> Tenant:
    if isinstance(reports.answer, Ended):
        return reports.record(workload, tenant, ())
    return reports.record(workload, tenant, windows_of(plan, reports.answer["completed_at"]))
