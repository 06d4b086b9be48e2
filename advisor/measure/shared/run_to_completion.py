"""One real run to the end of every job: each does its steps and stops, the others go on.

A tenant that has done its steps idles until the last of its group has: its context stays, and uses
no SM. Groups run one after another, each with new tenants. The time in which these start and load
does not count; the time to start or stop MPS for them does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from time import monotonic, time

from advisor.hardware.gpu_state import Activity
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.tenant_handle import Answer, Ended, TenantHandle
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.windows import Schedule, sleep_until, windows_of
from advisor.measure.shared.planned_run import CompletionRun, RunGroup
from advisor.measure.shared.shared_run import NOTICE_S, ReadyTenants, SharedRunSettings, made_ready
from advisor.workload.measured import Provenance, Window
from advisor.workload.run import Completion, Run, Tenant

# A tenant that has not done its steps by then hangs.
_LONGEST_S = 900.0

# When clocks are read: the GPU is busy, and no job has ended.
_UNDER_WAY_S = 0.5


@dataclass(frozen=True, slots=True)
class _Group:
    """The result of one group; columns have shape (tenants of the group,).

    Attributes:
        pause_s: Seconds taken to bring MPS into the state that it needs.
    """

    tenants: tuple[Tenant, ...]
    ended_s: tuple[float | None, ...]
    pause_s: float
    clients: int
    activity: Activity
    provenance: Provenance

    @property
    def seconds(self) -> float:
        return max((each for each in self.ended_s if each is not None), default=0.0)


def run_to_the_end(
    full: CompletionRun, cores: Sequence[tuple[int, ...]], settings: SharedRunSettings
) -> Run:
    """Run `full` for real, its tenants on `cores`, each until it has done its steps.

    A tenant that runs out of memory or dies is an outcome in the record; the others go on.

    Raises:
        InvalidInput: A workload cannot be built.
        GpuUnavailable: MPS does not start.
        AdvisorError: MPS is not in the state it should be in, or no tenant starts.
    """
    groups = [
        _group(full, run_group, [cores[job] for job in run_group.jobs], settings)
        for run_group in full.run_groups
    ]
    return _record(full, groups, settings.session.device.key)


def _group(
    full: CompletionRun,
    run_group: RunGroup,
    cores: Sequence[tuple[int, ...]],
    settings: SharedRunSettings,
) -> _Group:
    session, sharing = settings.session, run_group.mix.sharing
    began = monotonic()
    session.switch_to(sharing)
    pause_s = monotonic() - began
    steps = [full.steps[job] for job in run_group.jobs]
    setups = session.setups(sharing, cores, run_group.mix.workloads)
    with tenants_on(setups, session.folder) as tenants:
        group = _train_group(made_ready(run_group.mix, tenants, settings), steps)
    if None in group.ended_s:
        session.close()  # a client that dies can leave an MPS server that accepts no new clients
    return replace(group, pause_s=pause_s)


def _train_group(ready: ReadyTenants, steps: Sequence[int]) -> _Group:
    start_at = time() + NOTICE_S
    for tenant, each in zip(ready.tenants, steps, strict=True):
        tenant.send("run_steps", start_at=start_at, steps=each)
    answers, activity, clocks_mhz = _watched(ready.tenants, ready.meter, start_at)
    ended_s = tuple(_ended_s(each, start_at) for each in answers)
    return _Group(
        tenants=tuple(ready.records(answers, _windows(answers, start_at, ended_s))),
        ended_s=ended_s,
        pause_s=0.0,
        clients=ready.clients,
        activity=activity,
        provenance=ready.provenance(clocks_mhz),
    )


def _watched(
    tenants: Sequence[TenantHandle], meter: Meter, start_at: float
) -> tuple[list[Answer], Activity, tuple[int | None, int | None]]:
    """Tenants' answers when they have done their steps, and the device's activity until then."""
    sleep_until(start_at)
    meter.begin()
    sleep_until(start_at + _UNDER_WAY_S)
    clocks_mhz = meter.clocks_mhz()
    until = start_at + _LONGEST_S
    answers = [tenant.receive(max(0.0, until - time())) for tenant in tenants]
    return answers, meter.end(), clocks_mhz


def _ended_s(answer: Answer, start_at: float) -> float | None:
    """Seconds from the start until a tenant's last step ended; None if it ended early."""
    return None if isinstance(answer, Ended) else float(answer["completed_at"][-1] - start_at)


def _windows(
    answers: Sequence[Answer], start_at: float, ended_s: Sequence[float | None]
) -> Iterator[tuple[Window, ...]]:
    """For each tenant, its steps in each stretch of time in which the same tenants ran."""
    ends_s = sorted({each for each in ended_s if each is not None})
    for answer, own_s in zip(answers, ended_s, strict=True):
        if isinstance(answer, Ended) or own_s is None:
            yield ()
        else:
            bounds_s = (0.0, *(each for each in ends_s if each <= own_s))
            yield windows_of(Schedule(start_at, bounds_s), answer["completed_at"])


def _record(full: CompletionRun, groups: Sequence[_Group], gpu: str) -> Run:
    jobs = [job for run_group in full.run_groups for job in run_group.jobs]
    records = dict(zip(jobs, (each for group in groups for each in group.tenants), strict=True))
    activities = [group.activity for group in groups]
    energy_j, power_w = _energy(activities)
    return Run(
        id=full.id,
        gpu=gpu,
        sharing=str(full.sharing),
        purpose=full.purpose,
        repeats=None,
        tenants=tuple(records[job] for job in sorted(jobs)),
        mps_clients=sum(group.clients for group in groups),
        power_w=power_w,
        counters=activities[0].counters if len(groups) == 1 else None,
        provenance=groups[0].provenance,
        completion=_completion(full, groups, energy_j),
    )


def _completion(
    full: CompletionRun, groups: Sequence[_Group], energy_j: float | None
) -> Completion:
    began_s: dict[int, float] = {}
    ended_s: dict[int, float | None] = {}
    clock_s = 0.0
    for run_group, group in zip(full.run_groups, groups, strict=True):
        clock_s += group.pause_s if began_s else 0.0
        for job, took_s in zip(run_group.jobs, group.ended_s, strict=True):
            began_s[job] = clock_s
            ended_s[job] = None if took_s is None else clock_s + took_s
        clock_s += group.seconds
    jobs = range(len(full.workloads))
    return Completion(
        steps=full.steps,
        began_s=tuple(began_s[job] for job in jobs),
        ended_s=tuple(ended_s[job] for job in jobs),
        pauses_s=tuple(group.pause_s for group in groups[1:]),
        energy_j=energy_j,
    )


def _energy(activities: Sequence[Activity]) -> tuple[float | None, float | None]:
    """Joules of all groups together, and their mean power; None if one is not known."""
    if any(each.energy_j is None for each in activities):
        return None, None
    energy_j = fsum(each.energy_j or 0.0 for each in activities)
    return energy_j, energy_j / fsum(each.seconds for each in activities)
