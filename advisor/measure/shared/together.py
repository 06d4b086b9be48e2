"""What tenants do together before and after whatever is measured of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import sleep, time

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.tenant_memory import memory_record
from advisor.measure.process.tenants import GRACE_S, Answer, Ended, TenantProcess, ask_all
from advisor.measure.process.windows import step_s_of
from advisor.measure.process.worker import TenantSetup
from advisor.sharing import Mps, Naive
from advisor.workload.measured import Window
from advisor.workload.run import Tenant
from advisor.workload.spec import Workload

# From telling tenants when to start to that moment: they must have heard by then.
NOTICE_S = 0.1


def seats_for(
    sharing: Naive | Mps, cores: Sequence[tuple[int, ...]], stage: MpsSession
) -> tuple[TenantSetup, ...]:
    """Where tenants sit on `stage`, each on its `cores`."""
    environments = stage.environments(sharing, len(cores))
    return tuple(
        TenantSetup(stage.device.kind, each, environment)
        for each, environment in zip(cores, environments, strict=True)
    )


def rehearse(tenants: Sequence[TenantProcess], seconds: float) -> float:
    """Train together for `seconds`; the slowest tenant's step in that company, in seconds."""
    start_at = time() + NOTICE_S
    tell(tenants, start_at, start_at + seconds)
    answers = [tenant.receive(patience_s(start_at + seconds)) for tenant in tenants]
    return max(
        (step_s_of(start_at, each["completed_at"]) for each in answers if isinstance(each, dict)),
        default=0.0,
    )


def tell(tenants: Sequence[TenantProcess], start_at: float, stop_at: float) -> None:
    """Have all train from one moment to another."""
    for tenant in tenants:
        tenant.send("run", start_at=start_at, stop_at=stop_at)


def patience_s(stop_at: float) -> float:
    """How long to wait for those that stop at `stop_at`."""
    return max(0.0, stop_at - time()) + GRACE_S


def sleep_until(moment: float) -> None:
    """Wait for a moment of the wall clock; not at all where it is past."""
    sleep(max(0.0, moment - time()))


def check_hosts(tenants: Sequence[TenantProcess]) -> tuple[Answer, ...]:
    """All at once, for cores that work slow each other."""
    return ask_all(tenants, "check_host", [{} for _ in tenants])


@dataclass(frozen=True, slots=True)
class Said:
    """What one tenant answered, and what was seen of it.

    Attributes:
        loaded: To being told to load.
        answer: To being told to train while it was measured.
        check_s: Mean of its host checks before and after; None if it ended before it had done both.
        on_device_mib: What the driver saw of its process; None where it would not say.
    """

    loaded: Answer
    answer: Answer
    check_s: float | None
    on_device_mib: float | None

    def record(
        self, workload: Workload, tenant: TenantProcess, windows: tuple[Window, ...]
    ) -> Tenant:
        """Of the `tenant` that said so of `workload`, with its steps in `windows`."""
        ended = self.answer if isinstance(self.answer, Ended) else None
        told = [each["memory"] for each in (self.answer, self.loaded) if isinstance(each, dict)]
        return Tenant(
            workload=workload,
            outcome=ended.outcome if ended else "ok",
            detail=ended.detail if ended else None,
            windows=windows,
            memory=memory_record(told[0], self.on_device_mib) if told else None,
            cores=tenant.seat.cores,
            sms=None if isinstance(self.loaded, Ended) else self.loaded["sms"],
            host_check_s=self.check_s,
        )


def all_said(
    tenants: Sequence[TenantProcess],
    loaded: Sequence[Answer],
    checked: Sequence[Answer],
    answers: Sequence[Answer],
    meter: Meter,
) -> tuple[Said, ...]:
    """What `tenants` said that have just trained, their hosts checked once more.

    Args:
        tenants: Idle.
        loaded: What each said when it had loaded.
        checked: What each host check said before.
        answers: What each said when it had trained.
        meter: Of their device.
    """
    checks_s = map(_mean_check_s, checked, check_hosts(tenants))
    seen_mib = meter.memory_mib()
    held_mib = (seen_mib.get(tenant.pid) for tenant in tenants)
    return tuple(map(Said, loaded, answers, checks_s, held_mib))


def _mean_check_s(before: Answer, after: Answer) -> float | None:
    if isinstance(before, Ended) or isinstance(after, Ended):
        return None
    return float(before["check_s"] + after["check_s"]) / 2


def versions_of(tenants: Sequence[TenantProcess], run: str) -> Mapping[str, str | None]:
    """Versions of what measures, as the first tenant that started said.

    Raises:
        AdvisorError: None did; names the `run`.
    """
    versions = next((tenant.versions for tenant in tenants if tenant.versions), None)
    if versions is None:
        detail = tenants[0].ended.detail if tenants[0].ended else "it never said anything"
        raise AdvisorError(f"run {run}: no tenant starts: {detail}. Does torch import here?")
    return versions
