"""What runs on the GPU at hand, from what its driver says and what the user calls it."""

from collections.abc import Mapping, Sequence

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware.gpu_state import GpuProcess, LiveGpu
from advisor.plan.admission import Running
from advisor.sharing import Mps, Naive, Sharing
from advisor.workload.job import Job

# Share by which a process may differ in memory from a profile that it is compared to.
_ALIKE = 0.03
_NEAREST = 3


def running_now(
    live: LiveGpu, named: Sequence[Job], held_mib: Mapping[str, float]
) -> Running | None:
    """The jobs that run on `live`; None where nothing does.

    A driver knows processes, not jobs: the user names these.

    Args:
        live: The GPU as it is now.
        named: The jobs that the user says run there.
        held_mib: Memory of a process of each profile known, to suggest names.

    Raises:
        InvalidInput: The user names more or fewer jobs than there are processes, or the GPU is cut
            into MIG instances.
    """
    servers = {each.pid for each in live.mps}
    processes = [each for each in live.processes if each.pid not in servers]
    if live.mig_enabled:
        raise InvalidInput(
            f"GPU {live.index} is cut into MIG instances, and a driver does not say there which "
            f"job has which. Say what runs instead of --now: --running JOB,JOB --running-sharing "
            f"mig=4g.71gb@0,..."
        )
    if len(named) != len(processes):
        raise InvalidInput(_miscounted(live, processes, named, held_mib))
    if not processes:
        return None
    free_mib = live.memory_total_mib - live.memory_used_mib
    return Running(jobs=tuple(named), sharing=sharing_now(live), free_mib=free_mib)


def sharing_now(live: LiveGpu) -> Sharing:
    """How processes share a GPU that is not cut: under MPS where a server of it runs."""
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
        f"--running names {counted(len(named), 'job')}. A driver knows processes, not what they "
        f"train, and jobs that hold as much memory differ in all else. Name the job of each "
        f"process: --running JOB,JOB."
    )


def _described(process: GpuProcess, held_mib: Mapping[str, float]) -> str:
    if process.memory_mib is None:
        return f"pid {process.pid}"
    said = f"pid {process.pid} with {process.memory_mib:,.0f} MiB"
    near = {name: abs(mib / process.memory_mib - 1) for name, mib in held_mib.items()}
    alike = sorted((name for name, off in near.items() if off <= _ALIKE), key=near.__getitem__)
    return f"{said}, as much as {' or '.join(alike[:_NEAREST])}" if alike else said
