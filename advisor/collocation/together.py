"""What tenants do together before and after whatever is measured of them."""

from collections.abc import Mapping, Sequence
from time import sleep, time

from advisor.errors import AdvisorError
from advisor.running.stage import Stage
from advisor.running.tenants import GRACE_S, Answer, Ended, Tenant, ask_all
from advisor.running.windows import step_s_of
from advisor.running.worker import Seat
from advisor.sharing import Mps, Naive

# From telling tenants when to start to that moment: they must have heard by then.
NOTICE_S = 0.1


def seats_for(
    sharing: Naive | Mps, cores: Sequence[tuple[int, ...]], stage: Stage
) -> tuple[Seat, ...]:
    """Where tenants sit on `stage`, each on its `cores`."""
    environments = stage.environments(sharing, len(cores))
    return tuple(
        Seat(stage.device.kind, each, environment)
        for each, environment in zip(cores, environments, strict=True)
    )


def rehearse(tenants: Sequence[Tenant], seconds: float) -> float:
    """Train together for `seconds`; the slowest tenant's step in that company, in seconds."""
    start_at = time() + NOTICE_S
    tell(tenants, start_at, start_at + seconds)
    answers = [tenant.receive(patience_s(start_at + seconds)) for tenant in tenants]
    return max(
        (step_s_of(start_at, each["completed_at"]) for each in answers if isinstance(each, dict)),
        default=0.0,
    )


def tell(tenants: Sequence[Tenant], start_at: float, stop_at: float) -> None:
    """Have all train from one moment to another."""
    for tenant in tenants:
        tenant.send("run", start_at=start_at, stop_at=stop_at)


def patience_s(stop_at: float) -> float:
    """How long to wait for those that stop at `stop_at`."""
    return max(0.0, stop_at - time()) + GRACE_S


def sleep_until(moment: float) -> None:
    """Wait for a moment of the wall clock; not at all where it is past."""
    sleep(max(0.0, moment - time()))


def check_hosts(tenants: Sequence[Tenant]) -> tuple[Answer, ...]:
    """All at once, for cores that work slow each other."""
    return ask_all(tenants, "check_host", [{} for _ in tenants])


def mean_check_s(before: Answer, after: Answer) -> float | None:
    """What two host checks of one tenant say; None if it ended before it had done both."""
    if isinstance(before, Ended) or isinstance(after, Ended):
        return None
    return float(before["check_s"] + after["check_s"]) / 2


def last_memory(loaded: Answer, answer: Answer) -> dict[str, float] | None:
    """The last that a tenant said of its memory; None if it ended before it had run."""
    for each in (answer, loaded):
        if isinstance(each, dict):
            return dict(each["memory"])
    return None


def sms_of(loaded: Answer) -> int | None:
    """SMs that a tenant's context may use, as it said when it had loaded."""
    return None if isinstance(loaded, Ended) else loaded["sms"]


def versions_of(tenants: Sequence[Tenant], run: str) -> Mapping[str, str | None]:
    """Versions of what measures, as the first tenant that started said.

    Raises:
        AdvisorError: None did; names the `run`.
    """
    versions = next((tenant.versions for tenant in tenants if tenant.versions), None)
    if versions is None:
        detail = tenants[0].ended.detail if tenants[0].ended else "it never said anything"
        raise AdvisorError(f"run {run}: no tenant starts: {detail}. Does torch import here?")
    return versions
