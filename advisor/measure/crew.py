"""Commands of the zoo that have imported torch and wait for what to train."""

from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Literal

from advisor.measure.tenant import Tenant, TenantSetup, zoo_setup
from advisor.measure.tenants import SteppingTenant


class Crew:
    """Tenants that were started ahead of need, since importing torch takes some seconds.

    Args:
        device: Of all its tenants.
        folder: For their temporary files; a short path.
    """

    def __init__(self, device: Literal["cuda", "cpu"], folder: Path) -> None:
        self._setup, self._folder = zoo_setup(device), folder
        self._waiting: list[SteppingTenant] = []

    def prepare(self, count: int) -> None:
        """Start more until `count` wait; they import torch while the caller goes on."""
        self._waiting = [each for each in self._waiting if each.running.exit_code is None]
        while len(self._waiting) < count:
            tenant = SteppingTenant(self._setup, self._folder)
            tenant.start_stepping()
            self._waiting.append(tenant)

    def take(self, setup: TenantSetup) -> Tenant:
        """Return a tenant with `setup`: the one that waits longest, or a new one."""
        while self._waiting:
            tenant = self._waiting.pop(0)
            if tenant.running.exit_code is None:
                tenant.setup = setup
                return tenant
            tenant.end_by(monotonic())
        return SteppingTenant(setup, self._folder)

    def close(self) -> None:
        """End those that still wait."""
        while self._waiting:
            with suppress(OSError):
                self._waiting.pop().end_by(monotonic())
