"""The jobs that run on a GPU already, named by the user and compared with what its driver says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware.gpu_state import GpuProcess, LiveGpu
from advisor.sharing import Mps, Naive, Sharing
from advisor.sharing.traversal import check_count
from advisor.workload.job import Job
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The jobs that run on a GPU, and how they share it.

    Attributes:
        sharing: Naive, MPS with or without limits, or MIG instances.
        free_mib: Free memory of the GPU now; None: not known.

    Raises:
        InvalidInput: These jobs cannot share like this.
    """

    jobs: tuple[Job, ...]
    sharing: Sharing
    free_mib: float | None = None

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InvalidInput("no job runs. Leave out --running, and all of the GPU is free")
        if self.sharing.mode in ("serial", "phases"):
            raise InvalidInput(
                f"{self.sharing}: jobs that run at this moment run naive, mps or on mig instances"
            )
        check_count(self.sharing, len(self.jobs))


# Share by which a process may differ in memory from a profile that it is compared to.
_ALIKE = 0.03
_NEAREST = 3


def running_now(
    live: LiveGpu, named: Sequence[Job], held_mib: Mapping[str, float]
) -> Running | None:
    """The jobs that run on `live`; None where nothing runs.

    A driver knows processes, not jobs, so the user names the jobs.

    Args:
        live: The GPU as it is now.
        named: The jobs that the user says run there.
        held_mib: Memory of one process of each known profile, by name, to suggest names.

    Raises:
        InvalidInput: The user names more or fewer jobs than there are processes, or the GPU is cut
            into MIG instances.
    """
    processes = tenants(live)
    if live.mig_enabled:
        raise InvalidInput(
            f"GPU {live.index} is cut into MIG instances, and a driver does not say there which "
            f"job has which. Say yourself what runs and how, without --now: --running JOB,JOB "
            f"--running-sharing mig=4g.71gb@0,..."
        )
    if len(named) != len(processes):
        raise InvalidInput(_miscounted(live, processes, named, held_mib))
    if not processes:
        return None
    free_mib = live.memory_total_mib - live.memory_used_mib
    return Running(jobs=tuple(named), sharing=sharing_now(live), free_mib=free_mib)


def tenants(live: LiveGpu) -> list[GpuProcess]:
    """The processes on `live` that may be jobs: all but MPS servers."""
    servers = {each.pid for each in live.mps}
    return [each for each in live.processes if each.pid not in servers]


def recognised(live: LiveGpu, jobs: Sequence[Job]) -> tuple[int, ...]:
    """Positions of the `jobs` that seem to run on `live`, recognised by their memory.

    A process whose memory fits jobs of several names is not recognised.
    """
    held_mib = held_alone_mib(job.profile for job in jobs)
    found: list[int] = []
    for process in tenants(live):
        names = alike_in_memory(process, held_mib)
        left = (at for at, job in enumerate(jobs) if [job.name] == names and at not in found)
        found += list(left)[:1]
    return tuple(sorted(found))


def held_alone_mib(profiles: Iterable[Profile]) -> dict[str, float]:
    """Memory of one process of each profile, by name; profiles without it are left out."""
    return {each.name: each.memory.device_mib for each in profiles if each.memory.device_mib}


def alike_in_memory(process: GpuProcess, held_mib: Mapping[str, float]) -> list[str]:
    """Names of the jobs whose `held_mib` is like the memory of `process`, nearest first."""
    if not process.memory_mib:
        return []
    off = {name: abs(mib / process.memory_mib - 1) for name, mib in held_mib.items()}
    return sorted((name for name in off if off[name] <= _ALIKE), key=off.__getitem__)


def sharing_now(live: LiveGpu) -> Sharing:
    """How processes share a GPU without MIG instances: by MPS if an MPS server runs on it."""
    served = any(each.role == "server" and each.serves(live.uuid) for each in live.mps)
    return Mps() if served else Naive()


def _miscounted(
    live: LiveGpu,
    processes: Sequence[GpuProcess],
    named: Sequence[Job],
    held_mib: Mapping[str, float],
) -> str:
    listed = "; ".join(_described(each, held_mib) for each in processes) or "none"
    return (
        f"{counted(len(processes), 'process')} found on GPU {live.index} ({listed}), and "
        f"{counted(len(named), 'job')} named. A driver knows processes, not what they train, and "
        f"jobs that hold as much memory differ in all else. Name the job of each process "
        f"(--running JOB,JOB)."
    )


def _described(process: GpuProcess, held_mib: Mapping[str, float]) -> str:
    if process.memory_mib is None:
        return f"pid {process.pid}"
    said = f"pid {process.pid} with {process.memory_mib:,.0f} MiB"
    alike = alike_in_memory(process, held_mib)[:_NEAREST]
    return f"{said}, as much as {' or '.join(alike)}" if alike else said
