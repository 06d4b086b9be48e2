"""The rules that forbid a way of sharing, each with its reason; and whether memory suffices.

A rule looks at the jobs and how they would share, `memory_problem` at a prediction.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from advisor.errors import InvalidInput, NothingFits, check_choice, counted, in_percent
from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import profile_of
from advisor.plan import Layouts
from advisor.prediction.memory import leaves_free, pools_of
from advisor.prediction.prediction import Level, MixPrediction
from advisor.sharing import Sharing
from advisor.sharing.groups import groups, memories, mps_servers, partitions
from advisor.workload.job import Job

MAX_SLOWDOWN = 0.05
"""Default of the share by which steps of a protected or running job may take longer."""

TOO_SLOW = "slows a protected job more than --max-slowdown allows"
"""Why a way to share is left out that `slows_protected`."""

MAX_OOM_PROBABILITY = 0.05
"""A plan whose jobs run out of memory more often than this is none."""

EXACT_JOBS = 8
"""More jobs than this on one GPU are split into groups."""


def are_many(jobs: int, gpus: int = 1) -> bool:
    """Check whether so many jobs get the best plan that a search finds; of few, all are ranked."""
    return gpus > 1 or jobs > EXACT_JOBS


_CUDA = re.compile(r"(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Permissions of machine and user.

    Attributes:
        root: Whether plans may make MIG instances and set power caps.
        instances: Profiles of the MIG instances to which plans are confined, e.g. ``("3g.71gb",
            "4g.71gb")``, on a GPU in MIG mode; None: MIG mode is off, or root may change it.
        cuda: Version of the driver, e.g. ``"13.0"``.
        mig: ``"plain"``: one job at a time on each MIG instance; ``"any"``: also compute
            instances, and jobs that share an instance, neither of which any measurement supports.
    """

    root: bool = True
    instances: tuple[str, ...] | None = None
    cuda: str | None = None
    memory_margin: float = 0.0
    power_caps: bool = False
    mig: Layouts = "plain"

    def __post_init__(self) -> None:
        check_choice("--mig", self.mig, get_args(Layouts))
        if not 0 <= self.memory_margin < 1:
            raise InvalidInput(
                "a memory margin is a share from 0 to below 1, as 0.1 for 10 %, got "
                f"{self.memory_margin:g}. Change --memory-margin."
            )
        if self.cuda is not None and not _CUDA.match(self.cuda):
            raise InvalidInput(
                f"expected a CUDA version such as 13.0, got {self.cuda!r}. Run nvidia-smi."
            )


UNCONDITIONAL = Conditions()
"""The default: everything is allowed."""


def _one_user_under_mps(jobs: Sequence[Job], sharing: Sharing) -> str | None:
    """MPS serves one user at a time: other users' processes wait until its clients have left.

    NVIDIA MPS documentation, Architecture. MPS servers on separate MIG instances can have separate
    users.
    """
    for server in mps_servers(sharing, len(jobs)):
        users = {jobs[job].user for job in server}
        if len(users) > 1:
            named = " and ".join(sorted(user or "an unnamed user" for user in users))
            return f"MPS serves one user at a time, and these jobs are of {named}"
    return None


def _isolated_means_mig(jobs: Sequence[Job], sharing: Sharing) -> str | None:
    """An isolated job needs a GPU instance of its own, or the GPU while it runs.

    Compute instances share memory and faults, as jobs on one GPU instance do.
    """
    for memory in memories(sharing, len(jobs)):
        together = [jobs[number - 1] for part in memory for number in part.jobs]
        for job in together:
            if job.isolated and len(together) > 1:
                return f"{job.name} is isolated, and needs a MIG instance of its own"
    return None


def _data_parallel_off_mig(jobs: Sequence[Job], sharing: Sharing) -> str | None:
    """NCCL does not run on MIG (NVIDIA MIG User Guide, Application Considerations)."""
    for part in partitions(sharing, len(jobs)):
        for number in part.jobs:
            if (job := jobs[number - 1]).data_parallel and part.instance is not None:
                return f"{job.name} is data-parallel, and NCCL does not run on MIG"
    return None


_MISSED = "a job that starts later than the others has missed batches of their loader"


def loader_problem(jobs: Sequence[Job], sharing: Sharing) -> str | None:
    """Return why `jobs` cannot share a loader under `sharing`; None where they can, or do not.

    Its batches stay on one device, because CUDA IPC does not reach another GPU instance (NVIDIA MIG
    User Guide), and a job that joins later has missed some.
    """
    if not any(job.profile.workload.shared_loader for job in jobs):
        return None
    if sharing.instances:
        return "one data loader does not feed several MIG instances"
    if any(1 < (part.at_once or 1) < len(part.jobs) for part in partitions(sharing, len(jobs))):
        return _MISSED
    return None


def check_own_loaders(jobs: Sequence[Job]) -> None:
    """Raise InvalidInput if any of `jobs`, which do not all start at once, shares its loader."""
    if any(job.profile.workload.shared_loader for job in jobs):
        raise InvalidInput(f"{_MISSED}. Leave --share-loader out.")


def _no_root(jobs: Sequence[Job], sharing: Sharing, conditions: Conditions) -> str | None:
    """Only root can switch MIG mode, and create instances or allow others to create them."""
    if conditions.instances is None:
        needs_root = sharing.instances and not conditions.root
        return "making MIG instances needs root" if needs_root else None
    for group in groups(sharing, len(jobs)):
        if not group.instances:
            return "MIG mode is on, and switching it off needs root"
        if any(part.slices is not None for part in group.partitions):
            return "making compute instances needs root"
        own = Counter(each.profile for each in group.instances)
        if lacking := own - Counter(conditions.instances):
            names = ", ".join(lacking)
            return f"there is no other {names}, and making MIG instances needs root"
    return None


def _too_many_mps_clients(
    jobs: Sequence[Job], sharing: Sharing, gpu: Gpu, cuda: str | None
) -> str | None:
    """An MPS server on a MIG instance has clients in proportion to the slices of that instance."""
    for part in partitions(sharing, len(jobs)):
        allowed = mps_clients(gpu, cuda)
        if part.instance is not None:
            whole = max(each.compute_slices for each in gpu.mig)
            own = part.slices or profile_of(gpu, part.instance.profile).compute_slices
            allowed = allowed * own // whole
        clients = part.at_once or len(part.jobs)
        if part.sharing.under_mps and clients > allowed:
            return f"MPS serves at most {counted(allowed, 'process')}, not {clients}"
    return None


def mps_clients(gpu: Gpu, cuda: str | None) -> int:
    """Return the most clients that an MPS server on `gpu` can have under this CUDA version.

    NVIDIA MPS documentation: 48 up to CUDA 13.0 and for unknown versions, 60 from 13.1 on.
    """
    version = _CUDA.match(cuda) if cuda else None
    newer = version is not None and (int(version[1]), int(version[2])) >= (13, 1)
    return max(gpu.max_mps_clients, 60) if newer else gpu.max_mps_clients


def memory_problem(mix: MixPrediction, gpu: Gpu, margin: float = 0.0) -> str | None:
    """Return why the jobs of `mix` do not fit in the memory of `gpu`; None if they do.

    They may run out of memory with a small probability. `margin` is the share of each memory, the
    GPU's or an instance's, that the sum of the jobs' upper ends must leave free; 0: none.
    """
    if mix.oom_probability > MAX_OOM_PROBABILITY:
        return (
            f"does not fit: the jobs take {mix.memory_total_mib:,.0f} MiB "
            f"of {mix.memory_capacity_mib:,.0f} MiB"
        )
    for pool in pools_of(mix, gpu) if margin else ():
        upper_mib = pool.most_mib(mix.jobs[job].memory_interval_mib.p95 for job in pool.jobs)
        if not leaves_free(upper_mib, pool.capacity_mib, margin):
            return (
                f"leaves less than {in_percent(margin)} of memory free: the jobs take up to "
                f"{upper_mib:,.0f} MiB of {pool.capacity_mib:,.0f} MiB"
            )
    return None


def broken_rule(
    jobs: Sequence[Job], sharing: Sharing, gpu: Gpu, conditions: Conditions = UNCONDITIONAL
) -> str | None:
    """Return why `jobs`, in their order, may not share `gpu` by `sharing`; None where they may."""
    return (
        _one_user_under_mps(jobs, sharing)
        or _too_many_mps_clients(jobs, sharing, gpu, conditions.cuda)
        or _isolated_means_mig(jobs, sharing)
        or _data_parallel_off_mig(jobs, sharing)
        or loader_problem(jobs, sharing)
        or _no_root(jobs, sharing, conditions)
    )


def slows_protected(jobs: Sequence[Job], mix: MixPrediction, level: Level) -> bool:
    """Check whether `mix` slows a protected job by more than that job allows."""
    return any(
        job.protect is not None and answer.slowdown_at(level) > 1 + job.protect
        for job, answer in zip(jobs, mix.jobs, strict=True)
    )


def refuse_protected(jobs: Sequence[Job]) -> None:
    """Refuse protected jobs with `InvalidInput`, for questions that do not consider protection."""
    if protected := [job.name for job in jobs if job.protect is not None]:
        raise InvalidInput(
            f"{protected[0]} cannot be protected: protection is for up to {EXACT_JOBS} jobs that "
            "start together on one GPU. Plan those jobs, or leave the protection out."
        )


def refuse_confined(conditions: Conditions) -> None:
    """Refuse, with `InvalidInput`, to confine plans to MIG instances, for other questions."""
    if conditions.instances is not None:
        raise InvalidInput(
            f"without root, plans for a GPU in MIG mode are for up to {EXACT_JOBS} jobs that "
            "start together. For others, plan within one of its MIG devices: --gpu KEY, as "
            "`advisor gpus` lists it."
        )


def check_each_fits(serial: MixPrediction, gpu: Gpu, conditions: Conditions) -> None:
    """Check that every job fits on `gpu` alone, or raise `NothingFits`."""
    for job in serial.jobs:
        if job.oom_probability > MAX_OOM_PROBABILITY:
            needed, capacity = job.memory_interval_mib.p95, serial.memory_capacity_mib
            raise NothingFits(
                f"{job.job} does not fit on {serial.gpu} even alone: it takes up to {needed:,.0f} "
                f"MiB of {capacity:,.0f} MiB, {needed - capacity:,.0f} MiB too many. Use a "
                "smaller batch, or a GPU with more memory."
            )
    if problem := memory_problem(serial, gpu, conditions.memory_margin):
        raise NothingFits(
            f"no plan leaves so much memory free: even one job at a time {problem}. Lower "
            f"--memory-margin."
        )
