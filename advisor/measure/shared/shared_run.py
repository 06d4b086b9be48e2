"""One real shared run: new tenants train together until settled, then windows are measured."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import time

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import NOT_METERED, Activity
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.memory_filler import memory_filled
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.provenance import Origin
from advisor.measure.process.tenant_handle import Answer, Ended, TenantHandle
from advisor.measure.process.tenants import (
    GRACE_S,
    ask_all,
    memory_record,
    tenants_on,
)
from advisor.measure.process.windows import (
    Schedule,
    Timing,
    schedule,
    sleep_until,
    step_s_of,
    windows_of,
)
from advisor.measure.shared.planned_run import PlannedMix
from advisor.workload.measured import Provenance, Window
from advisor.workload.run import Run, Tenant

# Between the request to start and the start, in which every tenant receives the request.
NOTICE_S = 0.1

_Watched = tuple[Activity, tuple[int | None, int | None]]
_UNWATCHED: _Watched = (NOT_METERED, (None, None))

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
class ReadyTenants:
    """Tenants that have loaded the workloads of a mix and trained together until settled.

    Attributes:
        clients: Tenants that MPS serves.
        meter: Of their device.
        slowest_step_s: The slowest tenant's seconds a step while they settled.
    """

    mix: PlannedMix
    tenants: Sequence[TenantHandle]
    settings: SharedRunSettings
    clients: int
    meter: Meter
    slowest_step_s: float
    _loaded: Sequence[Answer]
    _checked: Sequence[Answer]

    @property
    def any_loaded(self) -> bool:
        """Whether one of them could load its workload."""
        return not all(isinstance(each, Ended) for each in self._loaded)

    def records(
        self, answers: Sequence[Answer], windows: Iterable[tuple[Window, ...]]
    ) -> Iterator[Tenant]:
        """The records of the tenants, by their `answers`, after checking their hosts once more."""
        checks_s = map(_mean_check_s, self._checked, _check_hosts(self.tenants))
        held_mib = self.meter.memory_mib()
        each_tenant = zip(self.mix.workloads, self.tenants, self._loaded, answers, strict=True)
        for (workload, tenant, loaded, answer), check_s, its in zip(
            each_tenant, checks_s, windows, strict=True
        ):
            ended = answer if isinstance(answer, Ended) else None
            reported = [each["memory"] for each in (answer, loaded) if isinstance(each, dict)]
            memory = memory_record(reported[0], held_mib.get(tenant.pid)) if reported else None
            yield Tenant(
                workload=workload,
                outcome=ended.outcome if ended else "ok",
                detail=ended.detail if ended else None,
                windows=its,
                memory=memory,
                cores=tenant.setup.cores,
                sms=None if isinstance(loaded, Ended) else loaded["sms"],
                host_check_s=check_s,
            )

    def provenance(self, clocks_mhz: tuple[int | None, int | None]) -> Provenance:
        """The provenance of a measurement that ended now.

        Raises:
            AdvisorError: No tenant started; the message names the run.
        """
        versions = next((tenant.versions for tenant in self.tenants if tenant.versions), None)
        if versions is None:
            ended = self.tenants[0].ended
            detail = ended.detail if ended else "no tenant answered"
            raise AdvisorError(
                f"run {self.mix.id}: no tenant starts: {detail}. Does torch import here?"
            )
        settings = self.settings
        origin = Origin(settings.session.device, settings.command, len(settings.cores))
        return origin.provenance(versions, clocks_mhz)


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
    setups = session.setups(mix.sharing, cores, mix.workloads)
    if mix.capacity_mib is not None:
        settings = replace(settings, timing=_TIMING_OF_MEMORY_RUNS)
    with (
        memory_filled(session, mix.capacity_mib) as free_mib,
        tenants_on(setups, session.folder) as tenants,
    ):
        run = _measured(made_ready(mix, tenants, settings), free_mib)
    if not run.ok:
        session.close()  # a client that dies can leave an MPS server that accepts no new clients
    return run


def _measured(ready: ReadyTenants, free_mib: float | None) -> Run:
    mix, tenants, device = ready.mix, ready.tenants, ready.settings.session.device
    plan = schedule(time() + NOTICE_S, ready.settings.timing, ready.slowest_step_s)
    start_training(tenants, plan.start_at, plan.stop_at)
    activity, clocks_mhz = _watch(ready.meter, plan) if ready.any_loaded else _UNWATCHED
    answers = answers_after(tenants, plan.stop_at)
    windows = [
        () if isinstance(each, Ended) else windows_of(plan, each["completed_at"])
        for each in answers
    ]
    return Run(
        id=mix.id,
        gpu=device.key,
        sharing=str(mix.sharing),
        purpose=mix.purpose,
        repeats=mix.repeats,
        tenants=tuple(ready.records(answers, windows)),
        mps_clients=ready.clients,
        power_w=activity.power_w,
        counters=activity.counters,
        provenance=ready.provenance(clocks_mhz),
        capacity_mib=mix.capacity_mib,
        free_mib=free_mib,
    )


def _watch(meter: Meter, plan: Schedule) -> _Watched:
    """Activity of the device over exactly the windows, and its clocks at their end."""
    sleep_until(plan.begin_at)
    meter.begin()
    sleep_until(plan.end_at)
    activity = meter.end()
    return activity, meter.clocks_mhz()


def made_ready(
    mix: PlannedMix, tenants: Sequence[TenantHandle], settings: SharedRunSettings
) -> ReadyTenants:
    """Load the workloads of `mix` into new `tenants`, and let them train until settled.

    Raises:
        InvalidInput: A workload cannot be built.
        AdvisorError: MPS does not serve a tenant that it should serve.
    """
    loaded = ask_all(tenants, "load", [{"workload": each} for each in mix.workloads])
    alive = [tenant.pid for tenant in tenants if tenant.ended is None]
    clients = settings.session.proved_clients(mix.sharing, alive)
    step_s = _train_together(tenants, settings.timing.settle_s)
    meter, checked = Meter(settings.session.device), _check_hosts(tenants)
    return ReadyTenants(mix, tenants, settings, clients, meter, step_s, loaded, checked)


def _train_together(tenants: Sequence[TenantHandle], seconds: float) -> float:
    """Train together for `seconds`; the slowest tenant's seconds a step meanwhile."""
    start_at = time() + NOTICE_S
    start_training(tenants, start_at, start_at + seconds)
    answers = answers_after(tenants, start_at + seconds)
    return max(
        (step_s_of(start_at, each["completed_at"]) for each in answers if isinstance(each, dict)),
        default=0.0,
    )


def start_training(tenants: Sequence[TenantHandle], start_at: float, stop_at: float) -> None:
    """Make all train from one moment to another."""
    for tenant in tenants:
        tenant.send("run", start_at=start_at, stop_at=stop_at)


def answers_after(tenants: Sequence[TenantHandle], stop_at: float) -> list[Answer]:
    """The answers of tenants that train until `stop_at`."""
    return [tenant.receive(max(0.0, stop_at - time()) + GRACE_S) for tenant in tenants]


def _check_hosts(tenants: Sequence[TenantHandle]) -> tuple[Answer, ...]:
    """The host check of all tenants at once, since busy cores slow each other."""
    return ask_all(tenants, "check_host", [{}] * len(tenants))


def _mean_check_s(before: Answer, after: Answer) -> float | None:
    if isinstance(before, Ended) or isinstance(after, Ended) or before["check_s"] is None:
        return None
    return float(before["check_s"] + after["check_s"]) / 2
