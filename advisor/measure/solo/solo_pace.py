"""How fast a workload trains alone: steady state first, then the windows that count."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import monotonic, sleep, time
from typing import Any

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import Activity
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenant_memory import memory_record
from advisor.measure.process.tenants import GRACE_S, Ended, TenantProcess
from advisor.measure.process.windows import Schedule, Timing, schedule, windows_of
from advisor.workload.measured import Memory, Window

# From telling a tenant when to start to that moment.
_NOTICE_S = 0.05

# Two stretches in a row whose median steps differ by no more than this are a steady state.
_STEADY_WITHIN = 0.03
_STRETCH_S, _STRETCH_STEPS = 0.4, 3

# Some workloads never are steady: a host's clock wanders. Then say so, and measure.
_LONGEST_SETTLING_S = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What the windows showed.

    Attributes:
        windows: Every window, shape (windows,).
        host_cpu_share: CPU seconds of the tenant and its loader over wall seconds times cores.
        activity: Of the whole GPU over the windows; None without one.
        clocks_mhz: Of SMs and memory while it ran.
        memory: Of the tenant at its most.
        host_check_s: How fast its core was, before and after, on average.
        meter_s: How long the device's driver took to answer.
    """

    windows: tuple[Window, ...]
    host_cpu_share: float
    activity: Activity | None
    clocks_mhz: tuple[int | None, int | None]
    memory: Memory
    host_check_s: float
    meter_s: float


def asked(tenant: TenantProcess, verb: str, **arguments: Any) -> dict[str, Any]:
    """What `tenant` answers.

    Raises:
        AdvisorError: It ran out of memory or died.
    """
    return _lively(tenant.ask(verb, **arguments))


def settled_step_s(tenant: TenantProcess, first_step_s: float) -> float:
    """Train until the pace is steady; seconds of a step then.

    Args:
        tenant: With a workload loaded.
        first_step_s: A guess at the seconds of a step.
    """
    paces: list[float] = [first_step_s]
    until = time() + _LONGEST_SETTLING_S
    while time() < until:
        stretch_s = max(_STRETCH_S, _STRETCH_STEPS * paces[-1])
        paces.append(_stretch_step_s(tenant, stretch_s))
        if is_steady(paces[1:]):
            return paces[-1]
    say(f"  not steady after {_LONGEST_SETTLING_S:.0f} s; its windows tell how it varies")
    return paces[-1]


def is_steady(paces: Sequence[float]) -> bool:
    """Whether the last two of `paces`, seconds of a step, agree."""
    if len(paces) < 2:
        return False
    return abs(paces[-1] - paces[-2]) <= _STEADY_WITHIN * min(paces[-2:])


def _stretch_step_s(tenant: TenantProcess, seconds: float) -> float:
    start_at = time() + _NOTICE_S
    told = asked(tenant, "run", start_at=start_at, stop_at=start_at + seconds)
    ends = [start_at, *told["completed_at"]]
    step_s: float = median(later - earlier for earlier, later in pairwise(ends))
    return step_s


def measured_pace(tenant: TenantProcess, meter: Meter, timing: Timing, step_s: float) -> Pace:
    """What `tenant` does in windows after `timing.lead_s`, while `meter` watches the device."""
    before = asked(tenant, "check_host")["check_s"]
    plan = schedule(time() + _NOTICE_S, timing, step_s)
    tenant.send("train", start_at=plan.start_at, stop_at=plan.stop_at)
    activity, clocks_mhz, meter_s = _metered(meter, plan)
    told = _lively(tenant.receive(max(0.0, plan.stop_at - time()) + GRACE_S))
    wall_s = told["completed_at"][-1] - plan.start_at
    after = asked(tenant, "check_host")["check_s"]
    return Pace(
        windows=windows_of(plan, told["completed_at"]),
        host_cpu_share=told["cpu_s"] / (wall_s * len(tenant.seat.cores)),
        activity=activity,
        clocks_mhz=clocks_mhz,
        memory=memory_record(told["memory"], _on_device_mib(tenant, meter)),
        host_check_s=(before + after) / 2,
        meter_s=meter_s,
    )


def _metered(
    meter: Meter, plan: Schedule
) -> tuple[Activity | None, tuple[int | None, int | None], float]:
    """Activity over the windows of `plan`, clocks, and how long the driver took to answer."""
    _sleep_until(plan.begin_at)
    began_s = monotonic()
    meter.begin()
    begun_s = monotonic()
    _sleep_until(plan.end_at)
    ended_s = monotonic()
    activity, clocks_mhz = meter.end(), meter.clocks_mhz()
    return activity, clocks_mhz, begun_s - began_s + monotonic() - ended_s


def _on_device_mib(tenant: TenantProcess, meter: Meter) -> float | None:
    """What the driver says that `tenant` holds."""
    seen = meter.memory_mib()
    # In a container the driver may know it by another number. Nobody else is on a claimed device
    # but an MPS server, which holds less than any tenant.
    return seen.get(tenant.pid, max(seen.values(), default=None))


def _lively(answer: dict[str, Any] | Ended) -> dict[str, Any]:
    if isinstance(answer, Ended):
        raise AdvisorError(f"{answer.outcome}: {answer.detail}")
    return answer


def _sleep_until(moment: float) -> None:
    sleep(max(0.0, moment - time()))
