"""``advisor doctor``: finds what disturbs measuring or sharing on this machine, and the remedies.

Branches of drivers as NVIDIA's MIG User Guide lists them (Supported GPUs; Placement, of 4g with
3g; MIG device names); MPS as its documentation says (Architecture: Volta and later).
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from shutil import which
from statistics import median
from time import process_time, sleep
from typing import Literal

from advisor.errors import AdvisorError, GpuUnavailable, clean, counted
from advisor.hardware.gpus import known_gpus
from advisor.hardware.live_gpu import live_gpus
from advisor.hardware.machine import (
    CONTROL,
    BrokenGpu,
    LiveGpu,
    MpsProcess,
    mps_processes,
    siblings_of,
)
from advisor.hardware.nvml import GpuHealth, gpu_health
from advisor.measure.process import (
    left_folders,
    left_in,
    left_locks,
    left_states,
    mps_within,
    processes_of,
    scripts_within,
)

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
    """This host at one moment; None if the kernel does not report it.

    Attributes:
        administrator: Whether this process may change GPUs and mounts (CAP_SYS_ADMIN).
        container: Kind of the container around this process; None without one.
        cores: Cores that this process may use, of `online` ones.
        quota_cores: Cores that a control group allows at once; None: all.
        governors: How each core chooses its clock, by core.
        siblings: Groups of `cores` that are threads of one physical core.
        stolen: Share of time that the hypervisor gave to others while this was read, 0..1.
        wanting: Processes on the host that ran or waited for a core, mean of the last minute.
        shm_mib: Shared memory, through which loaders hand over batches.
        core_s: Seconds of the same work on each of `cores`.
        core_later_s: The same, a moment later.
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
    """Read the state of this host.

    Args:
        root: Root of its file system, with the kernel's ``proc`` and ``sys``.
        siblings: As in `advisor.hardware.machine.split_cores`.
    """
    proc, system = root / "proc", root / "sys"
    cores = tuple(sorted(os.sched_getaffinity(0)))
    before = _ticks(proc)
    core_s = _core_times(cores)
    sleep(_TICKING_S)
    core_later_s = _core_times(cores)
    after = _ticks(proc)
    stolen = None
    if before is not None and after is not None and after[0] > before[0]:
        stolen = (after[1] - before[1]) / (after[0] - before[0])
    threads: dict[str, list[int]] = {}
    for core in cores:
        threads.setdefault(siblings(core), []).append(core)
    status = (_text(proc / "self" / "status") or "").splitlines()
    rights = [int(line.split()[1], 16) for line in status if line.startswith("CapEff:")]
    governors = {
        core: _text(system / "devices/system/cpu" / f"cpu{core}" / "cpufreq/scaling_governor")
        for core in cores
    }
    try:
        shm = os.statvfs(_SHM)
        shm_mib = shm.f_blocks * shm.f_frsize / 2**20
    except OSError:
        shm_mib = None
    return HostHealth(
        administrator=any(each & _CAP_SYS_ADMIN for each in rights),
        container=_container(root), cores=cores, online=os.cpu_count() or len(cores),
        quota_cores=_quota(system / "fs" / "cgroup"),
        governors={core: text.strip() for core, text in governors.items() if text},
        siblings=tuple(tuple(group) for group in threads.values() if len(group) > 1),
        stolen=stolen, wanting=float((_text(proc / "loadavg") or "0").split()[0]),
        shm_mib=shm_mib, core_s=core_s, core_later_s=core_later_s,
        mps=mps_processes(proc), has_mps=which(CONTROL) is not None,
        variables=tuple(sorted(name for name in os.environ if name.startswith(_TELLING))),
    )  # fmt: skip


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _container(root: Path) -> str | None:
    for mark, kind in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if (root / mark).exists():
            return kind
    groups = _text(root / "proc" / "1" / "cgroup") or ""
    return next((kind for kind in _CONTAINERS if kind in groups), None)


def _quota(groups: Path) -> float | None:
    """Read one file of the second version of control groups, or two of the first."""
    both = (_text(groups / "cpu.max") or "").split()
    if len(both) != 2:
        first = groups / "cpu"
        both = [_text(first / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    try:
        quota, period = map(float, both)
    except ValueError:  # "max", or none
        return None
    return quota / period if quota > 0 and period > 0 else None


def _ticks(proc: Path) -> tuple[int, int] | None:
    """Ticks of all cores since the host started, and the stolen ones (proc(5))."""
    first = (_text(proc / "stat") or "").partition("\n")[0].split()
    if len(first) < 9:
        return None
    counts = [int(each) for each in first[1:9]]
    return sum(counts), counts[7]


def _core_times(cores: tuple[int, ...]) -> dict[int, float]:
    """Seconds of the same work on each core; this process moves there and back.

    CPU time and not the clock's: the host's load shows which core is shared.
    """
    times_s = {}
    try:
        for core in cores:
            os.sched_setaffinity(0, [core])
            each_s = []
            for _ in range(_TIMES):
                began, total = process_time(), 0
                for number in range(_ADDITIONS):
                    total += number
                each_s.append(process_time() - began)
            times_s[core] = min(each_s)
    finally:
        os.sched_setaffinity(0, cores)
    return times_s


Severity = Literal["blocks", "spoils", "note"]
"""Something cannot be done; it can, and its figures are off; or it is good to know."""

Problem = tuple[Severity, str, str, str]
"""Severity, what, why and remedy of a `Finding`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a machine.

    Attributes:
        about: ``"host"`` or ``"GPU 0"``.
        why: Its effect on measuring or sharing.
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
    """Find what on the host spoils measuring or sharing."""
    parts = _mps(host), _cores(host), _load(host), _surroundings(host)
    for severity, *texts in chain.from_iterable(parts):
        yield Finding(severity, "host", *texts)


def _surroundings(host: HostHealth) -> Iterator[Problem]:
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


def _cores(host: HostHealth) -> Iterator[Problem]:
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
    both_s = {core: (each_s, host.core_later_s[core]) for core, each_s in host.core_s.items()}
    apart = {core: max(times_s) / min(times_s) for core, times_s in both_s.items()}
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
    best_s = {core: min(times_s) for core, times_s in both_s.items()}
    middle_s = median(best_s.values()) if best_s else 0.0
    slow = [core for core, each_s in best_s.items() if each_s > _SLOW_CORE * middle_s]
    if slow:
        worst = max(best_s[core] for core in slow) / middle_s
        yield (
            "spoils", f"cores {_listed(slow)} are up to {worst:.1f} times as slow as the others",
            "a job that is pinned there runs slower than predicted",
            "leave them out with --cores, or look again: they may have been busy",
        )  # fmt: skip


def _load(host: HostHealth) -> Iterator[Problem]:
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


def _mps(host: HostHealth) -> Iterator[Problem]:
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


# By what the product's name holds, the first branch that cuts it into MIG instances.
_FIRST_FOR_MIG = {
    "A100": 450, "A30": 460, "H100": 525, "GH200": 525, "H20": 535, "H200": 550, "B200": 570,
    "GB200": 570, "B300": 580, "GB300": 580, "RTX PRO": 575,
}  # fmt: skip
# Since this branch, 4g and 3g instances fit together.
_FIRST_FOR_4G_3G = 510
_VOLTA = (7, 0)


def gpu_findings(
    gpu: LiveGpu | BrokenGpu, health: GpuHealth | None, owner: Callable[[int], str]
) -> Iterator[Finding]:
    """Find what on a GPU spoils measuring or sharing.

    Args:
        gpu: Its present state.
        health: Its settings; None if it does not answer.
        owner: Returns the owner of a process, by its pid.
    """
    about = f"GPU {gpu.index}"
    if isinstance(gpu, BrokenGpu) or health is None:
        problem = gpu.problem.rstrip(".") if isinstance(gpu, BrokenGpu) else "it does not answer"
        yield Finding("blocks", about, problem, "nothing runs on it", "see dmesg, or reboot")
        return
    parts = _use(gpu, owner), _modes(gpu, health), _pace(health), _memory(health), _age(gpu, health)
    for severity, what, why, remedy in chain.from_iterable(parts):
        yield Finding(severity, about, what, why, remedy.format(index=gpu.index))


def _use(gpu: LiveGpu, owner: Callable[[int], str]) -> Iterator[Problem]:
    if gpu.processes:
        named = ", ".join(f"{each.pid} of {owner(each.pid)}" for each in gpu.processes)
        yield (
            "blocks", f"process {named} uses it", "measurements with it would be wrong",
            "wait for it, or use another GPU; what may join it: advisor recommend --now",
        )  # fmt: skip
    if gpu.mig_enabled:
        yield (
            "blocks", "it is in MIG mode", "jobs share an instance there, and not the whole GPU",
            "sudo nvidia-smi -i {index} -mig 0, or run on its instances",
        )  # fmt: skip
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
        yield (
            "blocks", f"MIG mode will be {'on' if gpu.mig_pending else 'off'} after the next reset",
            "until then neither the old mode nor the new one can be relied on",
            "end all processes on it, then: sudo nvidia-smi -i {index} --gpu-reset",
        )  # fmt: skip


def _modes(gpu: LiveGpu, health: GpuHealth) -> Iterator[Problem]:
    set_default = "sudo nvidia-smi -i {index} -c DEFAULT"
    match gpu.compute_mode:
        case "prohibited":
            yield "blocks", "its compute mode is prohibited", "no process may use it", set_default
        case "exclusive-process" | "exclusive-thread":
            yield (
                "blocks", f"its compute mode is {gpu.compute_mode}",
                "one process has it for itself: naive sharing fails, and MPS works", set_default,
            )  # fmt: skip
    if health.persistence is False:
        yield (
            "spoils", "persistence mode is off",
            "the driver unloads between runs: each start takes seconds, and settings are lost",
            "sudo nvidia-smi -i {index} -pm 1",
        )  # fmt: skip
    if health.time_slice not in (None, "default"):
        yield (
            "spoils", f"time slices are set to {health.time_slice}",
            "naive sharing was learnt with the default",
            "sudo nvidia-smi compute-policy -i {index} --set-timeslice 0, or measure it: "
            "advisor calibrate --gpu-side",
        )  # fmt: skip


def _pace(health: GpuHealth) -> Iterator[Problem]:
    if health.slowed_by:
        yield (
            "spoils", f"its clocks are held down by {', '.join(health.slowed_by)}",
            "it is slower than the same GPU elsewhere",
            "nvidia-smi -q -i {index} -d CLOCK,PERFORMANCE,POWER,TEMPERATURE says more",
        )  # fmt: skip
    limit_w, default_w = health.power_limit_w, health.default_limit_w
    if limit_w is not None and default_w is not None and round(limit_w) != round(default_w):
        yield (
            "spoils", f"its power limit is {limit_w:g} W and not {default_w:g} W",
            "predictions are for the GPU's own limit",
            f"sudo nvidia-smi -i {{index}} --power-limit={default_w:g}, or say --power-cap "
            f"{limit_w:g}",
        )  # fmt: skip


def _memory(health: GpuHealth) -> Iterator[Problem]:
    if health.uncorrected_errors:
        yield (
            "spoils", f"{health.uncorrected_errors} memory errors were not corrected",
            "a process that reads them ends, and under MPS the co-located jobs with it",
            "reset the GPU; where they come back, have it replaced",
        )  # fmt: skip
    if health.remap_pending:
        yield (
            "spoils", "bad memory waits to be replaced by spare rows",
            "until a reset it may be used", "sudo nvidia-smi -i {index} --gpu-reset",
        )  # fmt: skip
    if health.ecc is not None and health.ecc[0] != health.ecc[1]:
        yield (
            "note", f"ECC will be {'on' if health.ecc[1] else 'off'} after the next reset",
            "memory and its bandwidth change then", "reset now, and measure afterwards",
        )  # fmt: skip
    if health.ecc == (False, False):
        yield (
            "note", "ECC is off", "errors of memory go unseen, in results too",
            "sudo nvidia-smi -i {index} -e 1, then a reset",
        )  # fmt: skip


def _age(gpu: LiveGpu, health: GpuHealth) -> Iterator[Problem]:
    if gpu.counters == "nvml":
        yield (
            "note", "nothing counts how active its SMs and its memory are",
            "it has no GPM, which came with Hopper, and DCGM does not answer: profiles show less, "
            "and ranges are somewhat wider",
            "on a data-centre GPU: install datacenter-gpu-manager, then: sudo systemctl start "
            "nvidia-dcgm",
        )  # fmt: skip
    if health.compute_capability is not None and tuple(health.compute_capability) < _VOLTA:
        yield (
            "blocks", f"{gpu.product} is older than Volta",
            "its MPS has no limits and no memory of its own for each client",
            "use a newer GPU, or naive sharing",
        )  # fmt: skip
    if gpu.catalogue_key is None:
        yield (
            "blocks", f"{gpu.product} is not in the catalogue, and its driver does not describe it",
            "nothing can be answered for it", "update the driver",
        )  # fmt: skip
        return
    version = re.match(r"\d+", gpu.driver)
    if version is None or not known_gpus()[gpu.catalogue_key].mig:
        return
    branch = int(version[0])
    names = [name for name in _FIRST_FOR_MIG if re.search(rf"\b{name}\b", gpu.product)]
    first = max((_FIRST_FOR_MIG[name] for name in names), default=0)
    if branch < first:
        yield (
            "blocks", f"driver {gpu.driver} is older than branch {first}",
            f"MIG on {gpu.product} begins with that", "update the driver, or plan without MIG",
        )  # fmt: skip
    elif branch < _FIRST_FOR_4G_3G:
        yield (
            "note", f"driver {gpu.driver} is older than branch {_FIRST_FOR_4G_3G}",
            "a 4g and a 3g instance do not fit together", "update the driver",
        )  # fmt: skip


_CLEARS = "advisor doctor --undo"


def leftover_findings() -> Iterator[Finding]:
    """Find each state file, folder and lock without a living owner, and the remedy."""
    for severity, *texts in _leftovers():
        yield Finding(severity, "host", *texts)


def _leftovers() -> Iterator[Problem]:
    for path in left_states():
        left = left_in(path)
        marks = [line.partition(" ")[2] for line in left if line.startswith("jobs ")]
        pids = [pid for mark in marks for pid in processes_of(f"ADVISOR_MARK={mark}-")]
        changes = [line for line in left if not line.startswith(("jobs ", "folder "))]
        yield (
            "spoils" if pids or changes else "note",
            f"a script that ran a plan was killed: {path}{_living(pids)}",
            f"not undone: {', '.join(changes)}" if changes else "none of its further jobs starts",
            f"{_CLEARS} ends its jobs and undoes what it changed",
        )
    for folder in left_folders():
        pids = [*scripts_within(folder), *mps_within(folder)]
        yield (
            "spoils" if pids else "note",
            f"a killed measurement left {folder}{_living(pids)}",
            "its scripts and MPS daemons hold the GPU" if pids else "it takes room", _CLEARS,
        )  # fmt: skip
    for path in left_locks():
        yield (
            "note", f"a killed run left the lock {path}",
            "it stops no other run: the next one takes it over", _CLEARS,
        )  # fmt: skip


def _living(pids: Sequence[int]) -> str:
    if not pids:
        return ""
    count, verb = counted(len(pids), "process"), "lives" if len(pids) == 1 else "live"
    return f"; {count} of it {verb}: {', '.join(map(str, pids))}"


_ORDER: tuple[Severity, ...] = ("blocks", "spoils", "note")


def run_doctor(argv: Sequence[str]) -> int:
    """Print all findings; the exit code shows whether one blocks.

    Raises:
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    words = _parser().parse_args(argv)
    findings = examine()
    blocked = any(each.severity == "blocks" for each in findings)
    if words.json:
        document = {"schema": 1, "blocked": blocked, "findings": [*map(asdict, findings)]}
        print(json.dumps(document, indent=1))
    else:
        print(clean("\n".join(_lines(findings)), keep="\n"))
    return GpuUnavailable.exit_code if blocked else 0


def examine() -> list[Finding]:
    """Examine this machine, and change nothing; the worst finding is first."""
    findings = [*host_findings(host_health()), *leftover_findings()]
    try:
        for gpu in live_gpus():
            health = gpu_health(gpu.index) if isinstance(gpu, LiveGpu) else None
            findings += gpu_findings(gpu, health, _owner)
    except AdvisorError as error:
        findings.append(Finding(
            "blocks", "host", f"no GPU here: {str(error).rstrip('.')}",
            "nothing can be measured or shared here; advice from stored profiles needs no GPU",
            "go to a machine with a GPU, or open it to this container",
        ))  # fmt: skip
    return sorted(findings, key=lambda each: _ORDER.index(each.severity))


def _owner(pid: int) -> str:
    """The user as whom a process runs; drivers name processes of other containers too."""
    try:
        return Path(f"/proc/{pid}").owner()
    except (OSError, KeyError):
        return "a user outside this container"


def _lines(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for each in findings:
        lines += [f"{each.severity}  {each.about}: {each.what}", f"        {each.why}",
                  f"        -> {each.remedy}"]  # fmt: skip
    blocks, spoils, notes = (sum(each.severity == kind for each in findings) for kind in _ORDER)
    return [
        *lines,
        f"Found: {counted(blocks, 'problem')} that rule{'s' * (blocks == 1)} something out here, "
        f"{spoils} that spoil{'s' * (spoils == 1)} figures, {counted(notes, 'note')}. Nothing was "
        f"changed.",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor doctor",
        description="Finds what spoils measuring or sharing on this machine, and prints the "
        "remedies; changes nothing. blocks: something cannot be done here; spoils: it can, and "
        "figures are off; note: good to know. Also starts as `python -m advisor.measure doctor`, "
        "which needs nvidia-ml-py only.",
        epilog="Exit codes: 0 nothing blocks, 2 wrong use, 4 something does.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser
