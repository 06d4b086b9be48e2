"""One real run to the end of every job: each does its steps and leaves, the others go on.

A tenant that has done its steps idles until the last of its group has: its context stays, and uses
no SM. Groups come one after another, each with fresh tenants, which start and load while the clock
of the run stands still; what it takes to start or stop MPS for them counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from time import monotonic, time

from advisor.hardware.gpu_state import Activity
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.provenance import Origin
from advisor.measure.process.tenants import Answer, Ended, TenantProcess, ask_all, tenants_on
from advisor.measure.process.windows import Schedule, windows_of
from advisor.measure.shared.planned_run import CompletionRun, PlannedMix, RunGroup
from advisor.measure.shared.shared_run import SharedRunSetup
from advisor.measure.shared.together import (
    NOTICE_S,
    all_said,
    check_hosts,
    rehearse,
    seats_for,
    sleep_until,
    versions_of,
)
from advisor.workload.measured import Provenance, Window
from advisor.workload.run import Completion, Run, Tenant

# A tenant that has not done its steps by then hangs.
_LONGEST_S = 900.0

# When clocks are read: the GPU works, and no job has ended.
_UNDER_WAY_S = 0.5


@dataclass(frozen=True, slots=True)
class _Group:
    """How one group went; columns have shape (its tenants,).

    Attributes:
        pause_s: What it took to bring MPS into the state that it needs.
    """

    tenants: tuple[Tenant, ...]
    ended_s: tuple[float | None, ...]
    pause_s: float
    clients: int
    activity: Activity | None
    provenance: Provenance

    @property
    def seconds(self) -> float:
        return max((each for each in self.ended_s if each is not None), default=0.0)


def run_to_the_end(
    full: CompletionRun, cores: Sequence[tuple[int, ...]], setting: SharedRunSetup
) -> Run:
    """Run `full` for real, its tenants on `cores`, each until it has done its steps.

    A tenant that runs out of memory or dies is an outcome in the record; the others go on.

    Raises:
        InvalidInput: A workload cannot be built.
        GpuUnavailable: MPS does not start.
        AdvisorError: MPS is not in the state it should be in, or no tenant starts.
    """
    groups = [_group(full, heat, [cores[job] for job in heat.jobs], setting) for heat in full.heats]
    return _record(full, groups, setting.stage.device.key)


def _group(
    full: CompletionRun, heat: RunGroup, cores: Sequence[tuple[int, ...]], setting: SharedRunSetup
) -> _Group:
    stage, sharing = setting.stage, heat.mix.sharing
    began = monotonic()
    stage.set_for(sharing)
    pause_s = monotonic() - began
    steps = [full.steps[job] for job in heat.jobs]
    with tenants_on(seats_for(sharing, cores, stage), stage.folder) as tenants:
        group = _raced(heat.mix, steps, tenants, setting)
    if None in group.ended_s:
        stage.close()  # a client that dies can leave an MPS server that serves nobody anew
    return replace(group, pause_s=pause_s)


def _raced(
    mix: PlannedMix, steps: Sequence[int], tenants: Sequence[TenantProcess], setting: SharedRunSetup
) -> _Group:
    loaded = ask_all(tenants, "load", [{"workload": each} for each in mix.workloads])
    alive = [tenant.pid for tenant in tenants if tenant.ended is None]
    clients = setting.stage.proved_clients(mix.sharing, alive)
    rehearse(tenants, setting.timing.settle_s)
    device = setting.stage.device
    meter, checked = Meter(device), check_hosts(tenants)
    start_at = time() + NOTICE_S
    for tenant, each in zip(tenants, steps, strict=True):
        tenant.send("run_steps", start_at=start_at, steps=each)
    answers, activity, clocks_mhz = _watched(tenants, meter, start_at)
    said = all_said(tenants, loaded, checked, answers, meter)
    ended_s = tuple(_ended_s(each, start_at) for each in answers)
    own = zip(mix.workloads, tenants, said, _windows(answers, start_at, ended_s), strict=True)
    origin = Origin(device, setting.command, len(setting.cores))
    return _Group(
        tenants=tuple(its.record(workload, one, windows) for workload, one, its, windows in own),
        ended_s=ended_s,
        pause_s=0.0,
        clients=clients,
        activity=activity,
        provenance=origin.provenance(versions_of(tenants, mix.id), clocks_mhz),
    )


def _watched(
    tenants: Sequence[TenantProcess], meter: Meter, start_at: float
) -> tuple[list[Answer], Activity | None, tuple[int | None, int | None]]:
    """What tenants answer when they have done their steps, and what the device did until then."""
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
    """Of each tenant its steps in each stretch of time in which the same tenants ran."""
    ends_s = sorted({each for each in ended_s if each is not None})
    for answer, own_s in zip(answers, ended_s, strict=True):
        if isinstance(answer, Ended) or own_s is None:
            yield ()
        else:
            bounds_s = (0.0, *(each for each in ends_s if each <= own_s))
            yield windows_of(Schedule(start_at, bounds_s), answer["completed_at"])


def _record(full: CompletionRun, groups: Sequence[_Group], gpu: str) -> Run:
    jobs = [job for heat in full.heats for job in heat.jobs]
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
        counters=activities[0].counters if len(groups) == 1 and activities[0] else None,
        provenance=groups[0].provenance,
        completion=_completion(full, groups, energy_j),
    )


def _completion(
    full: CompletionRun, groups: Sequence[_Group], energy_j: float | None
) -> Completion:
    began_s: dict[int, float] = {}
    ended_s: dict[int, float | None] = {}
    clock_s = 0.0
    for heat, group in zip(full.heats, groups, strict=True):
        clock_s += group.pause_s if began_s else 0.0
        for job, took_s in zip(heat.jobs, group.ended_s, strict=True):
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


def _energy(activities: Sequence[Activity | None]) -> tuple[float | None, float | None]:
    """Joules of all groups together, and their mean power; None where one is not known."""
    known = [each for each in activities if each is not None and each.energy_j is not None]
    if len(known) < len(activities):
        return None, None
    energy_j = fsum(each.energy_j or 0.0 for each in known)
    return energy_j, energy_j / fsum(each.seconds for each in known)
