"""Reads from the kernel the state of this host that affects sharing and measuring."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from time import process_time, sleep

from advisor.hardware.host_cores import siblings_of
from advisor.hardware.mps import CONTROL, MpsProcess, mps_processes

_CAP_SYS_ADMIN = 1 << 21  # linux/capability.h
_SHM = "/dev/shm"
_CONTAINERS = ("docker", "containerd", "kubepods", "libpod", "lxc")
# Variables that change how CUDA shares or runs, wherever a user's processes inherit them.
_TELLING = ("CUDA_MPS_", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER")
# Additions by which a core is timed, and how often: its fastest time counts.
_ADDITIONS, _TIMES = 60_000, 4
# The kernel counts in hundredths of a second.
_TICKING_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHealth:
    """This host at one moment; None where the kernel does not say.

    Attributes:
        administrator: Whether this process may change GPUs and mounts (CAP_SYS_ADMIN).
        container: What kind of container this is in; None: in none.
        cores: That this process may use.
        online: Cores that the host has.
        quota_cores: What a control group allows of them at once; None: all.
        governors: How each core chooses its clock, by core.
        siblings: Cores of ours that are threads of one physical core, a group each.
        stolen: Share of time that the hypervisor gave to others while this was read, 0..1.
        wanting: Processes on the host that ran or waited for a core, mean of the last minute.
        shm_mib: Shared memory, through which loaders hand over batches.
        core_s: Seconds of the same work on each of `cores`.
        core_later_s: The same, a moment later.
        mps: Its MPS processes.
        has_mps: Whether MPS is installed.
        variables: Names of variables set here that change how CUDA shares.
    """

    administrator: bool
    container: str | None
    cores: tuple[int, ...]
    online: int
    quota_cores: float | None
    governors: Mapping[int, str]
    siblings: tuple[tuple[int, ...], ...]
    stolen: float | None
    wanting: float
    shm_mib: float | None
    core_s: Mapping[int, float]
    core_later_s: Mapping[int, float]
    mps: tuple[MpsProcess, ...]
    has_mps: bool
    variables: tuple[str, ...]


def host_health(root: Path = Path("/"), siblings: Callable[[int], str] = siblings_of) -> HostHealth:
    """This host now.

    Args:
        root: Of its file system, in which the kernel has ``proc`` and ``sys``.
        siblings: As of `advisor.hardware.host_cores.split_cores`.
    """
    proc, system = root / "proc", root / "sys"
    cores = tuple(sorted(os.sched_getaffinity(0)))
    before = _ticks(proc)
    core_s = _core_times(cores)
    sleep(_TICKING_S)
    core_later_s = _core_times(cores)
    return HostHealth(
        administrator=bool(_capabilities(proc) & _CAP_SYS_ADMIN),
        container=_container(root),
        cores=cores,
        online=os.cpu_count() or len(cores),
        quota_cores=_quota(system / "fs" / "cgroup"),
        governors={core: said for core in cores if (said := _governor(system, core))},
        siblings=_shared(cores, siblings),
        stolen=_stolen(before, _ticks(proc)),
        wanting=float((_text(proc / "loadavg") or "0").split()[0]),
        shm_mib=_size_mib(_SHM),
        core_s=core_s,
        core_later_s=core_later_s,
        mps=mps_processes(proc),
        has_mps=which(CONTROL) is not None,
        variables=tuple(sorted(name for name in os.environ if name.startswith(_TELLING))),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _capabilities(proc: Path) -> int:
    lines = (_text(proc / "self" / "status") or "").splitlines()
    said = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    return int(said[0], 16) if said else 0


def _container(root: Path) -> str | None:
    for mark, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if (root / mark).exists():
            return kind
    groups = _text(root / "proc" / "1" / "cgroup") or ""
    return next((kind for kind in _CONTAINERS if kind in groups), None)


def _quota(groups: Path) -> float | None:
    """Of the second version of control groups in one file, of the first in two."""
    both = (_text(groups / "cpu.max") or "").split()
    if len(both) != 2:
        first = groups / "cpu"
        both = [_text(first / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    try:
        quota, period = map(float, both)
    except ValueError:  # "max", or none
        return None
    return quota / period if quota > 0 and period > 0 else None


def _governor(system: Path, core: int) -> str | None:
    said = _text(system / "devices/system/cpu" / f"cpu{core}" / "cpufreq/scaling_governor")
    return said.strip() if said else None


def _shared(cores: tuple[int, ...], siblings: Callable[[int], str]) -> tuple[tuple[int, ...], ...]:
    groups: dict[str, list[int]] = {}
    for core in cores:
        groups.setdefault(siblings(core), []).append(core)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _ticks(proc: Path) -> tuple[int, int] | None:
    """Of all cores since the host started: all ticks, and those that were stolen (proc(5))."""
    first = (_text(proc / "stat") or "").partition("\n")[0].split()
    if len(first) < 9:
        return None
    counts = [int(each) for each in first[1:9]]
    return sum(counts), counts[7]


def _stolen(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[0] <= before[0]:
        return None
    return (after[1] - before[1]) / (after[0] - before[0])


def _size_mib(folder: str) -> float | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize / 2**20


def _core_times(cores: tuple[int, ...]) -> dict[int, float]:
    """How long each core takes, this process being moved there and back; what others have is off.

    The time of the process, not of the clock: a core that is shared is named by the load.
    """
    found = {}
    try:
        for core in cores:
            os.sched_setaffinity(0, [core])
            found[core] = min(_additions_s() for _ in range(_TIMES))
    finally:
        os.sched_setaffinity(0, cores)
    return found


def _additions_s() -> float:
    began = process_time()
    total = 0
    for each in range(_ADDITIONS):
        total += each
    return process_time() - began
