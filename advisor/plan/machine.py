"""The machine that advice is for: its calibration, its profiles, and what runs there now."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from advisor.english import counted
from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.gpu_state import GpuProcess, LiveGpu
from advisor.plan.recommendation import Calibrated, Predicts, Standing
from advisor.prediction.calibrated_predictor import (
    calibrated_predictor,
    profiles_on_calibrated,
    slowdown_of,
)
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mps, Naive, Sharing
from advisor.sharing.traversal import check_count
from advisor.workload.estimates import estimated_profiles
from advisor.workload.job import Job
from advisor.workload.machine_calibration import Calibration
from advisor.workload.profile import Profile
from advisor.workload.staleness import (
    Present,
    present_of,
    stale_profiles,
    unsteady_profiles,
)
from advisor.workload.store import NO_CALIBRATION, load_calibration

HostCheckNow = Callable[[], Calibration]
"""Checks the host at hand; raises an `AdvisorError` or an `OSError` where it cannot."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the jobs are to run.

    Attributes:
        file: File of `calibration`; None where there is no calibration, or the host was checked
            just now.
        calibration: Its calibration; None: the speed of its host is unknown, and intervals allow
            for that.
        present: Its hardware and software now; None: not known.
        unchecked: Why a check of the host just now failed; None: it succeeded, or none was tried.
    """

    file: Path | None
    calibration: Calibration | None
    present: Present | None
    unchecked: str | None = None

    def predictor(self, plain: Predictor) -> Predicts:
        """The predictor `plain`, corrected for this machine."""
        return plain if self.calibration is None else calibrated_predictor(plain, self.calibration)

    def standing(self, jobs: Sequence[Job]) -> Standing:
        """What a recommendation for `jobs` on this machine is based on."""
        profiles = [job.profile for job in jobs]
        calibrated = None
        if self.calibration is not None:
            known = [slowdown_of(each, self.calibration, len(jobs)) for each in profiles]
            slowdowns = [each for each in known if each is not None]
            file = None if self.file is None else str(self.file)
            calibrated = Calibrated(file, median(slowdowns) if slowdowns else None)
        unsteady, estimated = unsteady_profiles(profiles), estimated_profiles(profiles)
        if self.present is None:
            return Standing(calibrated, unsteady=unsteady, estimated=estimated)
        measured = [each for each in profiles if each.estimated_from is None]
        stale = stale_profiles(measured, self.present, host_known=self._host_known)
        return Standing(calibrated, stale, self.unchecked, unsteady, estimated)

    def profiles_here(self, profiles: Sequence[Profile], busy: int) -> tuple[Profile, ...]:
        """`profiles` at the speed of this machine's host with `busy` cores at work, if known."""
        if self.calibration is None:
            return tuple(profiles)
        return profiles_on_calibrated(profiles, self.calibration, busy)

    @property
    def _host_known(self) -> bool:
        """Whether the calibration may be of the present host: machines often share home folders."""
        if self.calibration is None or self.present is None:
            return False
        return self.calibration.provenance.host_cpu == self.present.host_cpu


def machine(
    gpu: str,
    calibration: Path | None,
    present: Present | None,
    check_host: HostCheckNow | None = None,
) -> Machine:
    """Find the calibration for advice on `gpu`.

    A calibration file that is named is used. Otherwise the user's own is, if it is of the host at
    hand. Where there is none, `check_host` measures how fast the host is now.

    Args:
        gpu: Catalogue key.
        calibration: File of a calibration; `NO_CALIBRATION`: use none; None: the user's own, if
            there is one.
        present: Hardware and software of the machine at hand; None: those of the calibrated
            machine.
        check_host: Checks the host at hand; None: advice is not for this machine.

    Raises:
        InvalidInput: The calibration is malformed or of another GPU.
    """
    if calibration == NO_CALIBRATION:
        return Machine(None, None, present)
    found, unchecked = load_calibration(gpu, calibration), None
    if check_host is not None and calibration is None and not _of_this_host(found, present):
        try:
            return Machine(None, check_host(), present)
        except (AdvisorError, OSError) as error:
            unchecked = str(error)
    if found is None:
        return Machine(None, None, present, unchecked)
    return Machine(*found, present or present_of(found[1].provenance), unchecked)


def _of_this_host(found: tuple[Path, Calibration] | None, present: Present | None) -> bool:
    """Whether the calibration `found` may be of the present host: homes are often shared."""
    if found is None:
        return False
    here = None if present is None else present.host_cpu
    return here in (None, found[1].provenance.host_cpu)


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
