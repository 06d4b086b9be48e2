"""Lists every process that a plan would start, with its cores, environment and command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from advisor.measure.process.cores import cores_of_each, spare_cores
from advisor.measure.process.mps_daemon import CONTROL, MpsDaemon
from advisor.measure.process.mps_session import tenant_environments
from advisor.measure.process.scratch_folder import FOLDER_PREFIX, temporary_base
from advisor.measure.shared.planned_run import PlannedMix, PlannedRun, mixes_of


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process that a plan would start.

    Attributes:
        role: Its purpose.
        cores: Host cores it is pinned to; empty if it is not pinned.
        environment: Variables set for it, in addition to the caller's without ``CUDA_MPS_...``.
        command: Words of its command; empty for a tenant, which is a fork of the fork server.
    """

    role: str
    cores: tuple[int, ...]
    environment: Mapping[str, str]
    command: tuple[str, ...]


def planned_processes(
    plan: PlannedRun, uuid: str | None, allowed: Sequence[int]
) -> tuple[PlannedProcess, ...]:
    """The processes of `plan`, in the order in which they start.

    Args:
        plan: What to run.
        uuid: The GPU to run on; None for a CPU.
        allowed: Host cores that tenants may have.

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
        PlannedProcess(f"{mix.id}: tenant {number}, trains {workload.name}", its, environment, ())
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
