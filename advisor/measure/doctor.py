"""``advisor doctor``: finds what disturbs measuring or sharing on this machine, and the remedies.

A check looks at one thing of the host or a GPU and yields its problems; a value that neither kernel
nor driver reports is none. Branches of drivers as NVIDIA's MIG User Guide lists them (Supported
GPUs; Placement, of 4g with 3g; MIG device names); MPS as its documentation says (Architecture:
Volta and later).
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from statistics import median
from time import process_time, sleep
from typing import Literal

from advisor.errors import AdvisorError, GpuUnavailable, clean, counted
from advisor.hardware.gpus import known_gpus
from advisor.hardware.live_gpu import live_gpus, mig_devices
from advisor.hardware.machine import (
    CONTROL,
    BrokenGpu,
    LiveGpu,
    allowed_cores,
    mps_processes,
    siblings_of,
)
from advisor.hardware.nvml import GpuHealth, gpu_health
from advisor.measure.process import (
    jobs_left,
    left_folders,
    left_in,
    left_locks,
    left_states,
    mps_within,
    scripts_within,
)

Severity = Literal["blocks", "spoils", "note"]
"""Something cannot be done; it can, and its figures are off; or it is good to know."""

_ORDER: tuple[Severity, ...] = ("blocks", "spoils", "note")

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


def _mps(_root: Path) -> Iterator[Problem]:
    for each in mps_processes():
        yield (
            "blocks",
            f"an MPS {each.role} of {each.owner} runs (process {each.pid}, pipes in {each.pipes})",
            "it would serve or disturb what is measured, and serves one user at a time",
            f"have its owner end it: {each.how_to_end}",
        )  # fmt: skip
    if which(CONTROL) is None:
        yield (
            "blocks", f"{CONTROL} is not installed", "jobs cannot share by MPS",
            "install the driver's compute utilities, or keep to naive sharing",
        )  # fmt: skip


# The kernel counts in hundredths of a second.
_TICKING_S = 0.5
# A core that takes so many times as long as the median one; or as itself, a moment before or after.
_SLOW_CORE, _UNSTEADY_CORE = 1.15, 1.3
_MUCH_STOLEN = 0.02


def _core_pace(root: Path) -> Iterator[Problem]:
    cores = allowed_cores()
    ticks, stolen = _ticks(root)
    first_s = _core_times(cores)
    sleep(_TICKING_S)
    both_s = {core: (first_s[core], later_s) for core, later_s in _core_times(cores).items()}
    ticks_later, stolen_later = _ticks(root)
    share = (stolen_later - stolen) / max(1, ticks_later - ticks)
    if share > _MUCH_STOLEN:
        yield (
            "spoils", f"the hypervisor took {share:.0%} of the cores' time just now",
            "steps that wait for the host follow", "measure at another time, or on another host",
        )  # fmt: skip
    apart = {core: max(times_s) / min(times_s) for core, times_s in both_s.items()}
    if changing := [core for core, times in apart.items() if times > _UNSTEADY_CORE]:
        yield (
            "spoils",
            f"cores {_listed(changing)} take up to {max(apart.values()):.1f} times as long from "
            f"one moment to the next",
            "threads of others, of another virtual machine even, may share their physical cores; "
            "steps that wait for the host vary with them",
            "profile such jobs more than once, or where the cores are yours alone",
        )  # fmt: skip
    best_s = {core: min(times_s) for core, times_s in both_s.items()}
    middle_s = median(best_s.values())
    if slow := [core for core, each_s in best_s.items() if each_s > _SLOW_CORE * middle_s]:
        worst = max(best_s[core] for core in slow) / middle_s
        yield (
            "spoils", f"cores {_listed(slow)} are up to {worst:.1f} times as slow as the others",
            "a job that is pinned there runs slower than predicted",
            "leave them out with --cores, or look again: they may have been busy",
        )  # fmt: skip


def _ticks(root: Path) -> tuple[int, int]:
    """Ticks of all cores since the host started, and the stolen ones (proc(5))."""
    words = _text(root / "proc/stat").partition("\n")[0].split()
    counts = [int(each) for each in words[1:9]] if len(words) > 8 else [0] * 8
    return sum(counts), counts[7]


# Additions by which a core is timed, and how often: its fastest time counts.
_ADDITIONS, _TIMES = 60_000, 4


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


def _governors(root: Path) -> Iterator[Problem]:
    folder = root / "sys/devices/system/cpu"
    texts = {_text(folder / f"cpu{core}/cpufreq/scaling_governor") for core in allowed_cores()}
    if slow_clocks := sorted({text.strip() for text in texts} - {"performance", ""}):
        yield (
            "spoils", f"cores choose their clocks by {', '.join(slow_clocks)}",
            "the same step takes longer on a core that has just been idle",
            "sudo cpupower frequency-set -g performance",
        )  # fmt: skip


def _load(root: Path) -> Iterator[Problem]:
    wanting = float((_text(root / "proc/loadavg") or "0").split()[0])
    online = os.cpu_count() or len(allowed_cores())
    if wanting > max(1.0, online / 4):
        yield (
            "spoils", f"{wanting:.1f} processes wanted {online} cores in the last minute",
            "jobs that wait for their host wait for others too",
            "measure when the host is idle, or give each its cores with --cores",
        )  # fmt: skip


def _quota(root: Path) -> Iterator[Problem]:
    """Reads one file of the second version of control groups, or two of the first."""
    groups = root / "sys/fs/cgroup"
    both = _text(groups / "cpu.max").split()
    if len(both) != 2:
        both = [_text(groups / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period")]
    try:
        quota, period = map(float, both)
    except ValueError:  # "max", or none
        return
    cores = len(allowed_cores())
    if quota > 0 and period > 0 and quota / period < cores:
        yield (
            "spoils",
            f"a control group allows {quota / period:g} cores' time, and {cores} cores are visible",
            "processes on all of them are stopped in turn",
            f"ask for more, or use --cores with {max(1, int(quota / period))} cores",
        )  # fmt: skip


def _siblings(_root: Path) -> Iterator[Problem]:
    threads: dict[str, list[int]] = {}
    for core in allowed_cores():
        threads.setdefault(siblings_of(core), []).append(core)
    if groups := [_listed(cores) for cores in threads.values() if len(cores) > 1]:
        more = "" if len(groups) <= 4 else f" and {len(groups) - 4} more"
        yield (
            "note", f"cores that share a physical core: {'; '.join(groups[:4])}{more}",
            "two jobs on one of these slow each other",
            "give the jobs cores of different groups: --cores",
        )  # fmt: skip


def _own_cores(_root: Path) -> Iterator[Problem]:
    cores, online = allowed_cores(), os.cpu_count() or 0
    if len(cores) < online:
        yield (
            "note", f"{len(cores)} of {online} cores are ours ({_listed(cores)})",
            "as many jobs at most can have a core of their own", "ask the scheduler for more",
        )  # fmt: skip


_SHM = "/dev/shm"
# Below this, loaders of a few workers run out of it: docker's default is 64 MiB.
_LITTLE_SHM_MIB = 1024


def _shared_memory(_root: Path) -> Iterator[Problem]:
    try:
        shm = os.statvfs(_SHM)
    except OSError:
        return
    shm_mib = shm.f_blocks * shm.f_frsize / 2**20
    if shm_mib < _LITTLE_SHM_MIB:
        yield (
            "spoils", f"/dev/shm holds {shm_mib:.0f} MiB",
            "loaders with workers hand over batches there, and die where it is full",
            "start the container with --shm-size=8g, or --ipc=host",
        )  # fmt: skip


_CONTAINERS = ("docker", "containerd", "kubepods", "libpod", "lxc")


def _container(root: Path) -> Iterator[Problem]:
    marks = {"docker": ".dockerenv", "podman": "run/.containerenv"}
    groups = _text(root / "proc/1/cgroup")
    kinds = [kind for kind, mark in marks.items() if (root / mark).exists()]
    kinds += [kind for kind in _CONTAINERS if kind in groups]
    if kinds:
        yield (
            "note", f"this is a container ({kinds[0]})",
            "processes of other containers are not visible here, and an MPS daemon outside serves "
            "only clients that share its pipe folder and IPC namespace",
            "run what shares a GPU in one container, or with --ipc=host and that folder mounted",
        )  # fmt: skip


_CAP_SYS_ADMIN = 1 << 21  # linux/capability.h


def _rights(root: Path) -> Iterator[Problem]:
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)", _text(root / "proc/self/status"), re.M)
    if rights is None or not int(rights[1], 16) & _CAP_SYS_ADMIN:
        yield (
            "note", "no administrator's rights", "MIG and power caps cannot be set",
            "ask for plans without them: advisor recommend --no-root",
        )  # fmt: skip


# Variables that change how CUDA shares or runs, wherever a user's processes inherit them.
_TELLING = ("CUDA_MPS_", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER")


def _variables(_root: Path) -> Iterator[Problem]:
    if names := sorted(name for name in os.environ if name.startswith(_TELLING)):
        yield (
            "note", f"set here: {', '.join(names)}",
            "your own processes inherit it; those that are measured do not inherit MPS settings",
            "unset what is not meant",
        )  # fmt: skip


def _text(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _listed(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))


_HOST_CHECKS: tuple[Callable[[Path], Iterator[Problem]], ...] = (
    _mps, _core_pace, _governors, _load, _quota, _siblings, _own_cores, _shared_memory, _container,
    _rights, _variables,
)  # fmt: skip


def host_findings(root: Path = Path("/")) -> Iterator[Finding]:
    """Find what on the host spoils measuring or sharing; the kernel's files lie in `root`."""
    for check in _HOST_CHECKS:
        for severity, *texts in check(root):
            yield Finding(severity, "host", *texts)


def _use(gpu: LiveGpu, _health: GpuHealth) -> Iterator[Problem]:
    if gpu.processes:
        named = ", ".join(f"{each.pid} of {_owner(each.pid)}" for each in gpu.processes)
        yield (
            "blocks", f"process {named} uses it", "measurements with it would be wrong",
            "wait for it, or use another GPU; what may join it: advisor recommend --now",
        )  # fmt: skip
    if gpu.mig_enabled:
        yield (
            "note" if mig_devices(gpu.uuid) else "blocks", "it is in MIG mode",
            "jobs have one of its MIG devices, not the whole GPU",
            f"name one by its UUID: --device MIG-...; or sudo nvidia-smi -i {gpu.index} -mig 0",
        )  # fmt: skip
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
        yield (
            "blocks", f"MIG mode will be {'on' if gpu.mig_pending else 'off'} after the next reset",
            "until then neither the old mode nor the new one can be relied on",
            f"end all processes on it, then: sudo nvidia-smi -i {gpu.index} --gpu-reset",
        )  # fmt: skip


def _modes(gpu: LiveGpu, health: GpuHealth) -> Iterator[Problem]:
    set_default = f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"
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
            f"sudo nvidia-smi -i {gpu.index} -pm 1",
        )  # fmt: skip
    if health.time_slice not in (None, "default"):
        yield (
            "spoils", f"time slices are set to {health.time_slice}",
            "naive sharing was learnt with the default",
            f"sudo nvidia-smi compute-policy -i {gpu.index} --set-timeslice 0, or measure it: "
            "advisor calibrate --gpu-side",
        )  # fmt: skip


def _pace(gpu: LiveGpu, health: GpuHealth) -> Iterator[Problem]:
    if health.slowed_by:
        yield (
            "spoils", f"its clocks are held down by {', '.join(health.slowed_by)}",
            "it is slower than the same GPU elsewhere",
            f"nvidia-smi -q -i {gpu.index} -d CLOCK,PERFORMANCE,POWER,TEMPERATURE says more",
        )  # fmt: skip
    limit_w, default_w = health.power_limit_w, health.default_limit_w
    if limit_w is not None and default_w is not None and round(limit_w) != round(default_w):
        yield (
            "spoils", f"its power limit is {limit_w:g} W and not {default_w:g} W",
            "predictions are for the GPU's own limit",
            f"sudo nvidia-smi -i {gpu.index} --power-limit={default_w:g}, or say --power-cap "
            f"{limit_w:g}",
        )  # fmt: skip


def _memory(gpu: LiveGpu, health: GpuHealth) -> Iterator[Problem]:
    if health.uncorrected_errors:
        yield (
            "spoils", f"{health.uncorrected_errors} memory errors were not corrected",
            "a process that reads them ends, and under MPS the co-located jobs with it",
            "reset the GPU; where they come back, have it replaced",
        )  # fmt: skip
    if health.remap_pending:
        yield (
            "spoils", "bad memory waits to be replaced by spare rows",
            "until a reset it may be used", f"sudo nvidia-smi -i {gpu.index} --gpu-reset",
        )  # fmt: skip
    if health.ecc is not None and health.ecc[0] != health.ecc[1]:
        yield (
            "note", f"ECC will be {'on' if health.ecc[1] else 'off'} after the next reset",
            "memory and its bandwidth change then", "reset now, and measure afterwards",
        )  # fmt: skip
    if health.ecc == (False, False):
        yield (
            "note", "ECC is off", "errors of memory go unseen, in results too",
            f"sudo nvidia-smi -i {gpu.index} -e 1, then a reset",
        )  # fmt: skip


# By what the product's name holds, the first branch that cuts it into MIG instances.
_FIRST_FOR_MIG = {
    "A100": 450, "A30": 460, "H100": 525, "GH200": 525, "H20": 535, "H200": 550, "B200": 570,
    "GB200": 570, "B300": 580, "GB300": 580, "RTX PRO": 575,
}  # fmt: skip
# Since this branch, 4g and 3g instances fit together.
_FIRST_FOR_4G_3G = 510
_VOLTA = (7, 0)


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


def _owner(pid: int) -> str:
    """The user as whom a process runs; drivers name processes of other containers too."""
    try:
        return Path(f"/proc/{pid}").owner()
    except (OSError, KeyError):
        return "a user outside this container"


def gpu_findings(gpu: LiveGpu | BrokenGpu) -> Iterator[Finding]:
    """Find what on a GPU spoils measuring or sharing."""
    about = f"GPU {gpu.index}"
    if isinstance(gpu, BrokenGpu):
        problem = gpu.problem.rstrip(".")
        yield Finding("blocks", about, problem, "nothing runs on it", "see dmesg, or reboot")
        return
    health = gpu_health(gpu.index)
    for check in (_use, _modes, _pace, _memory, _age):
        for severity, *texts in check(gpu, health):
            yield Finding(severity, about, *texts)


_CLEARS = "advisor doctor --undo"


def leftover_findings() -> Iterator[Finding]:
    """Find each state file, folder and lock without a living owner, and the remedy."""
    for path in left_states():
        left = left_in(path)
        pids = jobs_left(left)
        changes = [line for line in left if not line.startswith(("jobs ", "folder "))]
        yield Finding(
            "spoils" if pids or changes else "note", "host",
            f"a script that ran a plan was killed: {path}{_living(pids)}",
            f"not undone: {', '.join(changes)}" if changes else "none of its further jobs starts",
            f"{_CLEARS} ends its jobs and undoes what it changed",
        )  # fmt: skip
    for folder in left_folders():
        pids = [*scripts_within(folder), *mps_within(folder)]
        yield Finding(
            "spoils" if pids else "note", "host",
            f"a killed measurement left {folder}{_living(pids)}",
            "its scripts and MPS daemons hold the GPU" if pids else "it takes room", _CLEARS,
        )  # fmt: skip
    for path in left_locks():
        yield Finding(
            "note", "host", f"a killed run left the lock {path}",
            "it stops no other run: the next one takes it over", _CLEARS,
        )  # fmt: skip


def _living(pids: Sequence[int]) -> str:
    if not pids:
        return ""
    count, verb = counted(len(pids), "process"), "lives" if len(pids) == 1 else "live"
    return f"; {count} of it {verb}: {', '.join(map(str, pids))}"


def examine() -> list[Finding]:
    """Examine this machine, and change nothing; the worst finding is first."""
    findings = [*host_findings(), *leftover_findings()]
    try:
        for gpu in live_gpus():
            findings += gpu_findings(gpu)
    except AdvisorError as error:
        findings.append(Finding(
            "blocks", "host", f"no GPU here: {str(error).rstrip('.')}",
            "nothing can be measured or shared here; advice from stored profiles needs no GPU",
            "go to a machine with a GPU, or open it to this container",
        ))  # fmt: skip
    return sorted(findings, key=lambda each: _ORDER.index(each.severity))


def run_doctor(argv: Sequence[str]) -> int:
    """Print all findings; the exit code shows whether one blocks.

    Raises:
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    parser = argparse.ArgumentParser(
        prog="advisor doctor",
        description="Finds what spoils measuring or sharing on this machine, and prints the "
        "remedies; changes nothing. blocks: something cannot be done here; spoils: it can, and "
        "figures are off; note: good to know.",
        epilog="Exit codes: 0 nothing blocks, 2 wrong use, 4 something does.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    words = parser.parse_args(argv)
    findings = examine()
    blocked = any(each.severity == "blocks" for each in findings)
    if words.json:
        document = {"schema": 1, "blocked": blocked, "findings": [*map(asdict, findings)]}
        print(json.dumps(document, indent=1))
    else:
        print(clean("\n".join(_lines(findings)), keep="\n"))
    return GpuUnavailable.exit_code if blocked else 0


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
