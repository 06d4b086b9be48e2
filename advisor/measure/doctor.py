"""What on a GPU disturbs measuring or sharing, and what to do, by what was read of it before.

Branches of drivers as NVIDIA's MIG User Guide lists them (Supported GPUs; Placement, of 4g beside
3g; MIG device names); MPS as its documentation says (Architecture: Volta and later).
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from advisor.errors import AdvisorError, GpuUnavailable, clean, counted
from advisor.hardware.gpu_state import BrokenGpu, LiveGpu
from advisor.hardware.gpus import known_gpus
from advisor.hardware.live_gpu import live_gpus
from advisor.hardware.mps import CONTROL
from advisor.hardware.nvml import GpuHealth, gpu_health
from advisor.measure.host_health import HostHealth, host_health
from advisor.measure.process import (
    left_folders,
    left_in,
    left_locks,
    left_states,
    mps_within,
    processes_of,
    scripts_within,
)

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


# By what the product's name holds, the first branch that cuts it into MIG instances.
_FIRST_FOR_MIG = {
    "A100": 450, "A30": 460, "H100": 525, "GH200": 525, "H20": 535, "H200": 550, "B200": 570,
    "GB200": 570, "B300": 580, "GB300": 580, "RTX PRO": 575,
}  # fmt: skip
# Since this branch, 4g and 3g instances fit beside each other.
_FIRST_FOR_4G_3G = 510
_VOLTA = (7, 0)


def gpu_findings(
    gpu: LiveGpu | BrokenGpu, health: GpuHealth | None, owner: Callable[[int], str]
) -> Iterator[Finding]:
    """What on a GPU spoils.

    Args:
        gpu: As it is now.
        health: Its settings; None where it does not answer.
        owner: Says whose a process is, by its pid.
    """
    about = f"GPU {gpu.index}"
    if isinstance(gpu, BrokenGpu) or health is None:
        problem = gpu.problem.rstrip(".") if isinstance(gpu, BrokenGpu) else "it does not answer"
        yield Finding("blocks", about, problem, "nothing runs on it", "see dmesg, or reboot")
        return
    for part in (
        _use(gpu, owner),
        _modes(gpu, health),
        _pace(health),
        _memory(health),
        _counters(gpu),
        _age(gpu, health),
    ):
        for severity, what, why, remedy in part:
            yield Finding(severity, about, what, why, remedy.format(index=gpu.index))


def _use(gpu: LiveGpu, owner: Callable[[int], str]) -> Iterator[Said]:
    if gpu.processes:
        named = ", ".join(f"{each.pid} of {owner(each.pid)}" for each in gpu.processes)
        yield (
            "blocks", f"process {named} uses it", "measurements beside it would be wrong",
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


def _modes(gpu: LiveGpu, health: GpuHealth) -> Iterator[Said]:
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


def _pace(health: GpuHealth) -> Iterator[Said]:
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


def _memory(health: GpuHealth) -> Iterator[Said]:
    if health.uncorrected_errors:
        yield (
            "spoils", f"{health.uncorrected_errors} memory errors were not corrected",
            "a process that reads them ends, and under MPS its mates with it",
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


def _counters(gpu: LiveGpu) -> Iterator[Said]:
    if gpu.counters == "nvml":
        yield (
            "note", "nothing counts how active its SMs and its memory are",
            "it has no GPM, which came with Hopper, and DCGM does not answer: profiles tell less, "
            "and ranges are somewhat wider",
            "on a data-centre GPU: install datacenter-gpu-manager, then: sudo systemctl start "
            "nvidia-dcgm",
        )  # fmt: skip


def _age(gpu: LiveGpu, health: GpuHealth) -> Iterator[Said]:
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
    elif known_gpus()[gpu.catalogue_key].mig and (branch := re.match(r"\d+", gpu.driver)):
        yield from _age_for_mig(gpu, int(branch[0]))


def _age_for_mig(gpu: LiveGpu, branch: int) -> Iterator[Said]:
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
            "a 4g and a 3g instance do not fit beside each other", "update the driver",
        )  # fmt: skip


_CLEARS = "advisor doctor --undo"


def leftover_findings() -> Iterator[Finding]:
    """Each state file, folder and lock whose owner is dead, with the command that clears it."""
    for said in (*_scripts(), *_folders(), *_locks()):
        yield Finding(said[0], "host", *said[1:])


def _scripts() -> Iterator[Said]:
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


def _folders() -> Iterator[Said]:
    for folder in left_folders():
        pids = (*scripts_within(folder), *mps_within(folder))
        yield (
            "spoils" if pids else "note",
            f"a killed measurement left {folder}{_living(pids)}",
            "its scripts and MPS daemons hold the GPU" if pids else "it takes room", _CLEARS,
        )  # fmt: skip


def _locks() -> Iterator[Said]:
    for path in left_locks():
        yield (
            "note", f"a killed run left the lock {path}",
            "it stops nobody: the next run takes it over", _CLEARS,
        )  # fmt: skip


def _living(pids: Sequence[int]) -> str:
    if not pids:
        return ""
    count, verb = counted(len(pids), "process"), "lives" if len(pids) == 1 else "live"
    return f"; {count} of it {verb}: {', '.join(map(str, pids))}"


_ORDER: tuple[Severity, ...] = ("blocks", "spoils", "note")


def run_doctor(argv: Sequence[str]) -> int:
    """Print what is found; the exit code says whether anything blocks.

    Raises:
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    asked = _parser().parse_args(argv)
    found = examined()
    if asked.json:
        document = {"schema": 1, "blocked": _blocked(found), "findings": [*map(asdict, found)]}
        print(json.dumps(document, indent=1))
    else:
        print(clean("\n".join(_lines(found)), keep="\n"))
    return GpuUnavailable.exit_code if _blocked(found) else 0


def examined() -> list[Finding]:
    """What is found on this machine, the worst first; nothing is changed."""
    found = [*host_findings(host_health()), *leftover_findings()]
    try:
        for gpu in live_gpus():
            found += gpu_findings(
                gpu, gpu_health(gpu.index) if isinstance(gpu, LiveGpu) else None, _owner
            )
    except AdvisorError as error:
        found.append(without_gpu(str(error)))
    return sorted(found, key=lambda each: _ORDER.index(each.severity))


def _owner(pid: int) -> str:
    """The user as whom a process runs; drivers name processes of other containers too."""
    try:
        return Path(f"/proc/{pid}").owner()
    except (OSError, KeyError):
        return "somebody outside this container"


def _blocked(found: Sequence[Finding]) -> bool:
    return any(each.severity == "blocks" for each in found)


def _lines(found: Sequence[Finding]) -> list[str]:
    lines = []
    for each in found:
        lines += [f"{each.severity}  {each.about}: {each.what}", f"        {each.why}",
                  f"        -> {each.remedy}"]  # fmt: skip
    blocks, spoils, notes = (sum(each.severity == kind for each in found) for kind in _ORDER)
    return [
        *lines,
        f"Found: {counted(blocks, 'problem')} that rule{'s' * (blocks == 1)} something out here, "
        f"{spoils} that spoil{'s' * (spoils == 1)} figures, {counted(notes, 'note')}. Nothing was "
        f"changed.",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor doctor",
        description="Looks for what spoils measuring or sharing on this machine, and says what to "
        "do; changes nothing. blocks: something cannot be done here; spoils: it can, and figures "
        "are off; note: good to know. Also starts as `python -m advisor.measure doctor`, which "
        "needs nvidia-ml-py only.",
        epilog="Exit codes: 0 nothing blocks, 2 wrong use, 4 something does.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser
