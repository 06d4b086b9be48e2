"""All tenants of a measurement together, and those that wait for a measurement."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from advisor.errors import AdvisorError
from advisor.measure.printing import PrintingTenant
from advisor.measure.tenant import LOAD_S, Answer, Tenant, TenantSetup, zoo_setup

# How long tenants have to end after they were asked to stop.
_POLITE_S = 3.0


@contextmanager
def tenants_on(
    setups: Sequence[TenantSetup],
    folder: Path,
    take: Callable[[TenantSetup], Tenant] | None = None,
) -> Iterator[tuple[Tenant, ...]]:
    """Make tenants, one for each of `setups`, ready for requests; end all when the block ends.

    The first request starts them, but those of the zoo that `take` has started already. Their
    temporary files go to `folder`, a short path.

    Raises:
        AdvisorError: One changed a file of the user's.
    """
    tenants: list[Tenant] = []
    try:
        for setup in setups:
            if setup.line is not None and take is not None:
                tenants.append(take(setup))
            else:
                kind = Tenant if setup.script.by_steps else PrintingTenant
                tenants.append(kind(setup, folder))
        yield tuple(tenants)
    finally:
        for tenant in tenants:
            tenant.interrupt()
        deadline = monotonic() + _POLITE_S
        for tenant in tenants:
            tenant.end_by(deadline)
        wrote = [each.named for each in tenants if each.exposed and each.exposed.name_changes()]
    if wrote:
        raise AdvisorError(
            f"{wrote[0]} changed files of yours, which are named above. Check them, and measure it "
            f"in a copy of its folder: --folder COPY."
        )


def send_all(tenants: Sequence[Tenant], verb: str, **arguments: Any) -> None:
    """Send every tenant the same request."""
    for tenant in tenants:
        tenant.send(verb, **arguments)


def receive_all(tenants: Sequence[Tenant], timeout_s: float) -> tuple[Answer, ...]:
    """Wait for all answers, in the tenants' order."""
    deadline = monotonic() + timeout_s
    return tuple(tenant.receive(max(0.0, deadline - monotonic())) for tenant in tenants)


def ask_all(
    tenants: Sequence[Tenant], verb: str, timeout_s: float = LOAD_S, **arguments: Any
) -> tuple[Answer, ...]:
    """Send every tenant the same request at once, then wait for all answers."""
    send_all(tenants, verb, **arguments)
    return receive_all(tenants, timeout_s)


class Crew:
    """Tenants of the zoo that were started ahead of need: importing torch takes some seconds."""

    def __init__(self, device: Literal["cuda", "cpu"], folder: Path) -> None:
        self._setup, self._folder = zoo_setup(device), folder
        self._waiting: list[Tenant] = []

    def prepare(self, count: int) -> None:
        """Start more until `count` wait; they import torch while the caller goes on."""
        self._waiting = [each for each in self._waiting if each.running.exit_code is None]
        while len(self._waiting) < count:
            tenant = Tenant(self._setup, self._folder)
            tenant.start()
            self._waiting.append(tenant)

    def take(self, setup: TenantSetup) -> Tenant:
        """Return a tenant with `setup`: the one that waits longest, or a new one."""
        while self._waiting:
            tenant = self._waiting.pop(0)
            if tenant.running.exit_code is None:
                tenant.setup = setup
                return tenant
            tenant.end_by(monotonic())
        return Tenant(setup, self._folder)

    def close(self) -> None:
        """End those that still wait."""
        while self._waiting:
            with suppress(OSError):
                self._waiting.pop().end_by(monotonic())
