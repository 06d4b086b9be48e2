"""A claimed device on which mixes are measured one after another."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.measure.process.claimed_device import Device, claimed
from advisor.measure.process.cores import allowed_cores, cores_of_each, spare_cores
from advisor.measure.process.mps_session import mps_session_on
from advisor.measure.process.scratch_folder import scratch_folder
from advisor.measure.process.tenants import warm_up
from advisor.measure.process.windows import Timing
from advisor.measure.shared.planned_run import CompletionRun, PlannedMix
from advisor.measure.shared.run_to_completion import run_to_the_end
from advisor.measure.shared.shared_run import SharedRunSettings, measure
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True)
class Bench:
    """The device on which a process measures, and the host cores that its tenants may have."""

    settings: SharedRunSettings
    allowed: tuple[int, ...]

    def measure(self, mix: PlannedMix | CompletionRun) -> Run:
        """Run `mix` for real.

        Raises:
            InvalidInput: A workload cannot be built, or there are too few cores.
            AdvisorError: As `advisor.measure.shared.shared_run.measure` does.
        """
        cores = cores_of_tenants(mix, self.allowed, self.settings.session.device.kind)
        # This process must not disturb the tenants.
        os.sched_setaffinity(0, spare_cores(cores, self.settings.cores))
        if isinstance(mix, CompletionRun):
            return run_to_the_end(mix, cores, self.settings)
        return measure(mix, cores, self.settings)


@contextmanager
def bench_on(
    device: Device, allowed: Sequence[int], timing: Timing, command: str
) -> Iterator[Bench]:
    """`device`, claimed until the block ends.

    Args:
        device: What to measure on.
        allowed: Host cores that tenants may have.
        timing: How long to measure.
        command: The user's command line.

    Raises:
        GpuUnavailable: Another process uses it.
    """
    ours = allowed_cores()
    with claimed(device, command), scratch_folder() as folder:
        warm_up(folder)
        with mps_session_on(device, folder) as session:
            settings = SharedRunSettings(
                session=session, timing=timing, command=command, cores=ours
            )
            yield Bench(settings, tuple(allowed))


def cores_of_tenants(
    mix: PlannedMix | CompletionRun, allowed: Sequence[int], kind: str
) -> tuple[tuple[int, ...], ...]:
    """The cores of each tenant of `mix` among those `allowed`, on a device of `kind`.

    Raises:
        InvalidInput: There are too few for those that run at the same time; the message names the
            run.
    """
    cores: dict[int, tuple[int, ...]] = {}
    for run_group in mix.run_groups:
        needs = [mix.workloads[job].cores for job in run_group.jobs]
        try:
            cores |= zip(
                run_group.jobs, cores_of_each(needs, allowed, share=kind == "cpu"), strict=True
            )
        except InvalidInput as error:
            raise InvalidInput(f"run {mix.id}: {error}") from None
    return tuple(cores[job] for job in range(len(mix.workloads)))
