"""Starts tenants together before a measurement, and collects what they report after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.tenants import (
    GRACE_S,
    Answer,
    Ended,
    TenantProcess,
    ask_all,
    memory_record,
)
from advisor.measure.process.windows import step_s_of
from advisor.workload.measured import Window
from advisor.workload.run import Tenant
from advisor.workload.spec import Workload

# Between the request to start and the start, in which every tenant receives the request.
NOTICE_S = 0.1


def train_together(tenants: Sequence[TenantProcess], seconds: float) -> float:
    """Train together for `seconds`; the slowest tenant's seconds a step meanwhile."""
    start_at = time() + NOTICE_S
    start_training(tenants, start_at, start_at + seconds)
    answers = [tenant.receive(answer_timeout_s(start_at + seconds)) for tenant in tenants]
    return max(
        (step_s_of(start_at, each["completed_at"]) for each in answers if isinstance(each, dict)),
        default=0.0,
    )


def start_training(tenants: Sequence[TenantProcess], start_at: float, stop_at: float) -> None:
    """Make all train from one moment to another."""
    for tenant in tenants:
        tenant.send("run", start_at=start_at, stop_at=stop_at)


def answer_timeout_s(stop_at: float) -> float:
    """How long to wait for those that stop at `stop_at`."""
    return max(0.0, stop_at - time()) + GRACE_S


def check_hosts(tenants: Sequence[TenantProcess]) -> tuple[Answer, ...]:
    """The host check of all tenants at once, since busy cores slow each other."""
    return ask_all(tenants, "check_host", [{} for _ in tenants])


@dataclass(frozen=True, slots=True)
class TenantReport:
    """The answers of one tenant, and what was measured from outside.

    Attributes:
        loaded: Answer to the request to load.
        answer: Answer to the request to train while it was measured.
        check_s: Mean of its host checks before and after; None if it ended before both were done.
        on_device_mib: Device memory of its process from the driver; None if the driver does not
            say.
    """

    loaded: Answer
    answer: Answer
    check_s: float | None
    on_device_mib: float | None

    def record(
        self, workload: Workload, tenant: TenantProcess, windows: tuple[Window, ...]
    ) -> Tenant:
        """The record of `tenant`, which trained `workload`, with its steps in `windows`."""
        ended = self.answer if isinstance(self.answer, Ended) else None
        run_summary = [
            each["memory"] for each in (self.answer, self.loaded) if isinstance(each, dict)
        ]
        return Tenant(
            workload=workload,
            outcome=ended.outcome if ended else "ok",
            detail=ended.detail if ended else None,
            windows=windows,
            memory=memory_record(run_summary[0], self.on_device_mib) if run_summary else None,
            cores=tenant.setup.cores,
            sms=None if isinstance(self.loaded, Ended) else self.loaded["sms"],
            host_check_s=self.check_s,
        )


def tenant_reports(
    tenants: Sequence[TenantProcess],
    loaded: Sequence[Answer],
    checked: Sequence[Answer],
    answers: Sequence[Answer],
    meter: Meter,
) -> tuple[TenantReport, ...]:
    """The reports of `tenants` that have just trained, after checking their hosts once more.

    Args:
        tenants: Idle.
        loaded: Answers to the requests to load.
        checked: Answers of the host checks before training.
        answers: Answers to the requests to train.
        meter: Of their device.
    """
    checks_s = map(_mean_check_s, checked, check_hosts(tenants))
    seen_mib = meter.memory_mib()
    held_mib = (seen_mib.get(tenant.pid) for tenant in tenants)
    return tuple(map(TenantReport, loaded, answers, checks_s, held_mib))


def _mean_check_s(before: Answer, after: Answer) -> float | None:
    if isinstance(before, Ended) or isinstance(after, Ended):
        return None
    return float(before["check_s"] + after["check_s"]) / 2


def versions_of(tenants: Sequence[TenantProcess], run: str) -> Mapping[str, str | None]:
    """Versions of torch, CUDA and timm, from the first tenant that started.

    Raises:
        AdvisorError: None started; the message names the `run`.
    """
    versions = next((tenant.versions for tenant in tenants if tenant.versions), None)
    if versions is None:
        detail = tenants[0].ended.detail if tenants[0].ended else "no tenant answered"
        raise AdvisorError(f"run {run}: no tenant starts: {detail}. Does torch import here?")
    return versions
