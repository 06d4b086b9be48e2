"""A device, claimed and ready, on which mixes are measured one after the other."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.measure.process.claimed_device import Device, claimed
from advisor.measure.process.cores import allowed_cores, cores_of_each, spare_cores
from advisor.measure.process.mps_session import stage_on
from advisor.measure.process.scratch_folder import scratch_folder
from advisor.measure.process.tenants import warm_up
from advisor.measure.process.windows import Timing
from advisor.measure.shared.planned_run import CompletionRun, PlannedMix
from advisor.measure.shared.run_to_completion import run_to_the_end
from advisor.measure.shared.shared_run import SharedRunSetup, measure
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a process measures: its device, and the host cores that tenants may have."""

    setting: SharedRunSetup
    allowed: tuple[int, ...]

    def measure(self, mix: PlannedMix | CompletionRun) -> Run:
        """Run `mix` for real.

        Raises:
            InvalidInput: A workload cannot be built, or there are too few cores.
            AdvisorError: As `advisor.measure.shared.shared_run.measure` does.
        """
        cores = cores_of_tenants(mix, self.allowed, self.setting.stage.device.kind)
        # What watches must not disturb what is watched.
        os.sched_setaffinity(0, spare_cores(cores, self.setting.cores))
        if isinstance(mix, CompletionRun):
            return run_to_the_end(mix, cores, self.setting)
        return measure(mix, cores, self.setting)


@contextmanager
def bench_on(
    device: Device, allowed: Sequence[int], timing: Timing, command: str
) -> Iterator[Bench]:
    """`device`, claimed until the block ends.

    Args:
        device: What to measure on.
        allowed: Host cores that tenants may have.
        timing: How long to look.
        command: What the user typed.

    Raises:
        GpuUnavailable: Somebody else uses it.
    """
    ours = allowed_cores()
    with claimed(device, command), scratch_folder() as folder:
        warm_up(folder)
        with stage_on(device, folder) as stage:
            setting = SharedRunSetup(stage=stage, timing=timing, command=command, cores=ours)
            yield Bench(setting, tuple(allowed))


def cores_of_tenants(
    mix: PlannedMix | CompletionRun, allowed: Sequence[int], kind: str
) -> tuple[tuple[int, ...], ...]:
    """The cores of each tenant of `mix` among those `allowed`, on a device of `kind`.

    Raises:
        InvalidInput: There are too few for those that run at the same time; names the run.
    """
    cores: dict[int, tuple[int, ...]] = {}
    for heat in mix.heats:
        needs = [mix.workloads[job].cores for job in heat.jobs]
        try:
            cores |= zip(heat.jobs, cores_of_each(needs, allowed, share=kind == "cpu"), strict=True)
        except InvalidInput as error:
            raise InvalidInput(f"run {mix.id}: {error}") from None
    return tuple(cores[job] for job in range(len(mix.workloads)))
