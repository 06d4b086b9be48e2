"""What on a host disturbs measuring or sharing, and what to do, by what was read of it before."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Literal

from advisor.hardware.mps import CONTROL
from advisor.measure.doctor.host_health import HostHealth

Severity = Literal["blocks", "spoils", "note"]
"""What is asked cannot be done; it can, and its figures are off; or it is good to know."""


Said = tuple[Severity, str, str, str]
"""A finding without what it is about."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing on a machine.

    Attributes:
        about: ``"host"`` or ``"GPU 0"``.
        what: What was found.
        why: What that does to measuring or sharing.
        remedy: What to do.
    """

    severity: Severity
    about: str
    what: str
    why: str
    remedy: str


# A core that takes so many times as long as the median one; or as itself, a moment before or after.
_SLOW_CORE, _UNSTEADY_CORE = 1.15, 1.3
_MUCH_STOLEN = 0.02
# Below this, loaders of a few workers run out of it: docker's default is 64 MiB.
_LITTLE_SHM_MIB = 1024


def host_findings(host: HostHealth) -> Iterator[Finding]:
    """What on the host spoils."""
    for said in (*_mps(host), *_cores(host), *_load(host), *_places(host), *_surroundings(host)):
        yield Finding(said[0], "host", *said[1:])


def _surroundings(host: HostHealth) -> Iterator[Said]:
    if host.shm_mib is not None and host.shm_mib < _LITTLE_SHM_MIB:
        yield (
            "spoils", f"/dev/shm holds {host.shm_mib:.0f} MiB",
            "loaders with workers hand over batches there, and die where it is full",
            "start the container with --shm-size=8g, or --ipc=host",
        )  # fmt: skip
    if host.container is not None:
        yield (
            "note", f"this is a container ({host.container})",
            "processes of other containers are not visible here, and an MPS daemon outside serves "
            "only clients that share its pipe folder and IPC namespace",
            "run what shares a GPU in one container, or with --ipc=host and that folder mounted",
        )  # fmt: skip
    if not host.administrator:
        yield (
            "note", "no administrator's rights", "MIG and power caps cannot be set",
            "ask for plans without them: advisor recommend --no-root",
        )  # fmt: skip
    if host.variables:
        yield (
            "note", f"set here: {', '.join(host.variables)}",
            "your own processes inherit it; those that are measured do not inherit MPS settings",
            "unset what is not meant",
        )  # fmt: skip


def _cores(host: HostHealth) -> Iterator[Said]:
    if host.stolen is not None and host.stolen > _MUCH_STOLEN:
        yield (
            "spoils", f"the hypervisor took {host.stolen:.0%} of the cores' time just now",
            "steps that wait for the host follow", "measure at another time, or on another host",
        )  # fmt: skip
    slow_clocks = sorted({each for each in host.governors.values() if each != "performance"})
    if slow_clocks:
        yield (
            "spoils", f"cores choose their clocks by {', '.join(slow_clocks)}",
            "the same step takes longer on a core that has just been idle",
            "sudo cpupower frequency-set -g performance",
        )  # fmt: skip
    apart = _apart(host)
    changing = [core for core, times in apart.items() if times > _UNSTEADY_CORE]
    if changing:
        yield (
            "spoils",
            f"cores {_listed(changing)} take up to {max(apart.values()):.1f} times as long from "
            f"one moment to the next",
            "threads of others, of another virtual machine even, may share their physical cores; "
            "steps that wait for the host vary with them",
            "profile such jobs more than once, or where the cores are yours alone",
        )  # fmt: skip
    best_s = {core: min(each_s, host.core_later_s[core]) for core, each_s in host.core_s.items()}
    middle_s = median(best_s.values()) if best_s else 0.0
    slow = [core for core, each_s in best_s.items() if each_s > _SLOW_CORE * middle_s]
    if slow:
        worst = max(best_s[core] for core in slow) / middle_s
        yield (
            "spoils", f"cores {_listed(slow)} are up to {worst:.1f} times as slow as the others",
            "a job that is pinned there runs slower than predicted",
            "leave them out with --cores, or look again: they may have been busy",
        )  # fmt: skip


def _apart(host: HostHealth) -> dict[int, float]:
    """How many times as long each core took at one moment as at the other."""
    both_s = {core: (each_s, host.core_later_s[core]) for core, each_s in host.core_s.items()}
    return {core: max(times_s) / min(times_s) for core, times_s in both_s.items()}


def _load(host: HostHealth) -> Iterator[Said]:
    if host.wanting > max(1.0, host.online / 4):
        yield (
            "spoils",
            f"{host.wanting:.1f} processes wanted {host.online} cores in the last minute",
            "jobs that wait for their host wait for others too",
            "measure when the host is idle, or give each its cores with --cores",
        )  # fmt: skip
    if host.quota_cores is not None and host.quota_cores < len(host.cores):
        yield (
            "spoils",
            f"a control group allows {host.quota_cores:g} cores' time, and {len(host.cores)} cores "
            f"are visible",
            "processes on all of them are stopped in turn",
            f"ask for more, or use --cores with {max(1, int(host.quota_cores))} cores",
        )  # fmt: skip


def _places(host: HostHealth) -> Iterator[Said]:
    if host.siblings:
        groups = "; ".join(_listed(group) for group in host.siblings[:4])
        more = "" if len(host.siblings) <= 4 else f" and {len(host.siblings) - 4} more"
        yield (
            "note", f"cores that share a physical core: {groups}{more}",
            "two jobs on one of these slow each other",
            "give the jobs cores of different groups: --cores",
        )  # fmt: skip
    if len(host.cores) < host.online:
        yield (
            "note", f"{len(host.cores)} of {host.online} cores are ours ({_listed(host.cores)})",
            "as many jobs at most can have a core of their own", "ask the scheduler for more",
        )  # fmt: skip


def _listed(cores: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, cores))


def _mps(host: HostHealth) -> Iterator[Said]:
    """Whether MPS can be used, and who does already."""
    for each in host.mps:
        yield (
            "blocks",
            f"an MPS {each.role} of {each.owner} runs (process {each.pid}, pipes in "
            f"{each.pipes})",
            "it would serve or disturb what is measured, and serves one user at a time",
            f"have its owner end it: {each.how_to_end}",
        )  # fmt: skip
    if not host.has_mps:
        yield (
            "blocks", f"{CONTROL} is not installed", "jobs cannot share by MPS",
            "install the driver's compute utilities, or keep to naive sharing",
        )  # fmt: skip


def without_gpu(why: str) -> Finding:
    """Where no driver answers."""
    return Finding(
        "blocks", "host", f"no GPU at hand: {why.rstrip('.')}",
        "nothing can be measured or shared here; advice from stored profiles needs none",
        "go to a machine with a GPU, or open it to this container",
    )  # fmt: skip
