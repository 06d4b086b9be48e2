"""A claimed device on which mixes are measured one after another."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from advisor.hardware.mps import CONTROL
from advisor.measure.process.claimed_device import Device, claimed
from advisor.measure.process.cores import (
    allowed_cores,
    cores_of_each,
    leave_to_tenants,
    spare_cores,
)
from advisor.measure.process.mps_daemon import MpsDaemon
from advisor.measure.process.mps_session import mps_session_on, tenant_environments
from advisor.measure.process.scratch_folders import FOLDER_PREFIX, scratch_folder, temporary_base
from advisor.measure.process.tenants import warm_up
from advisor.measure.process.windows import Timing
from advisor.measure.shared.planned_run import (
    CompletionRun,
    Measurable,
    PlannedMix,
    PlannedRun,
    mixes_of,
)
from advisor.measure.shared.run_to_completion import run_to_the_end
from advisor.measure.shared.shared_run import SharedRunSettings, measure
from advisor.workload.files import located
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True)
class Bench:
    """The device on which a process measures, and the host cores that its tenants may have.

    Attributes:
        share: Whether tenants share cores where there are too few for all, instead of a refusal.
    """

    settings: SharedRunSettings
    allowed: tuple[int, ...]
    share: bool = False

    def measure(self, mix: Measurable) -> Run:
        """Run `mix` for real.

        Raises:
            InvalidInput: A workload cannot be built, or there are too few cores.
            AdvisorError: As `advisor.measure.shared.shared_run.measure` does.
        """
        kind = self.settings.session.device.kind
        cores = cores_of_tenants(mix, self.allowed, kind, share=self.share)
        leave_to_tenants(cores, self.settings.cores)
        if isinstance(mix, CompletionRun):
            return run_to_the_end(mix, cores, self.settings)
        return measure(mix, cores, self.settings)


@contextmanager
def bench_on(
    device: Device, allowed: Sequence[int], timing: Timing, command: str, *, share: bool = False
) -> Iterator[Bench]:
    """`device`, claimed until the block ends.

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
            yield Bench(settings, tuple(allowed), share)


def cores_of_tenants(
    mix: Measurable, allowed: Sequence[int], kind: str, *, share: bool = False
) -> tuple[tuple[int, ...], ...]:
    """The cores of each tenant of `mix` among those `allowed`, on a device of `kind`.

    Raises:
        InvalidInput: There are too few for those that run at the same time; the message names the
            run.
    """
    cores: dict[int, tuple[int, ...]] = {}
    for run_group in mix.run_groups:
        needs = [mix.workloads[job].cores for job in run_group.jobs]
        with located(f"run {mix.id}"):
            found = cores_of_each(needs, allowed, share=share or kind == "cpu")
        cores |= zip(run_group.jobs, found, strict=True)
    return tuple(cores[job] for job in range(len(mix.workloads)))


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process that a plan would start.

    Attributes:
        role: Its purpose.
        cores: Host cores it is pinned to; empty if it is not pinned.
        environment: Variables set for it, in addition to the caller's without ``CUDA_MPS_...``.
        command: Words of its command; empty for a tenant that is a fork of the fork server.
    """

    role: str
    cores: tuple[int, ...]
    environment: Mapping[str, str]
    command: tuple[str, ...]


def planned_processes(
    plan: PlannedRun, uuid: str | None, allowed: Sequence[int]
) -> tuple[PlannedProcess, ...]:
    """The processes of `plan` on the GPU `uuid`, or on a CPU, in the order in which they start.

    Raises:
        InvalidInput: There are too few cores.
    """
    folder = temporary_base() / (FOLDER_PREFIX + "XXXXXXXX")
    groups = [run_group.mix for each in mixes_of(plan) for run_group in each.run_groups]
    return tuple(chain.from_iterable(_of_mix(mix, uuid, allowed, folder) for mix in groups))


def _of_mix(
    mix: PlannedMix, uuid: str | None, allowed: Sequence[int], folder: Path
) -> list[PlannedProcess]:
    cores = cores_of_each([each.cores for each in mix.workloads], allowed, share=uuid is None)
    environments = tenant_environments(mix.sharing, len(mix.workloads), folder, uuid)
    tenants = [
        PlannedProcess(
            f"{mix.id}: tenant {number}, trains {workload.name}",
            its,
            environment,
            () if workload.script is None else workload.script.command,
        )
        for number, (workload, its, environment) in enumerate(
            zip(mix.workloads, cores, environments, strict=True), start=1
        )
    ]
    supervisor = PlannedProcess(
        f"{mix.id}: supervisor, forks, watches and ends all others",
        spare_cores(cores, allowed),
        {},
        ("python", "-m", "advisor.collocation", "plans.json", "--device", uuid or "cpu"),
    )
    return [supervisor, *_daemon(mix, uuid, folder), *tenants]


def _daemon(mix: PlannedMix, uuid: str | None, folder: Path) -> list[PlannedProcess]:
    if uuid is None or not mix.sharing.under_mps:
        return []
    environment = MpsDaemon(folder, uuid).environment
    return [PlannedProcess(f"{mix.id}: MPS daemon", (), environment, (CONTROL, "-f"))]
