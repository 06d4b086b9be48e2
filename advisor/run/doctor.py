"""``advisor doctor``: finds what disturbs measuring or sharing on this machine, and the remedies.

A check looks at one thing of the host or a GPU; a value that neither kernel nor driver reports is
no problem. MPS as its documentation says (Architecture: Volta and later).
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from time import process_time
from typing import Any, Literal

import psutil

from advisor.documents import in_document
from advisor.errors import AdvisorError, counted
from advisor.hardware.live_gpu import GpuHealth, gpu_health, live_gpus
from advisor.hardware.machine import CONTROL, BrokenGpu, LiveGpu, allowed_cores, mps_processes
from advisor.measure.process import left_behind, mps_within, scripts_within
from advisor.run.start import jobs_left, left_in, left_states

Severity = Literal["blocks", "spoils", "note"]
"""Something cannot be done; it can, and its figures are off; or it is good to know."""

_ORDER: tuple[Severity, ...] = ("blocks", "spoils", "note")


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


@dataclass(frozen=True, slots=True)
class _Check:
    """One problem; if the value that `look` returns is true, it is ``{it}`` in the texts."""

    severity: Severity
    look: Callable[..., Any]
    what: str
    why: str
    remedy: str

    def findings(self, about: str, **subject: Any) -> Iterator[Finding]:
        if it := self.look(*subject.values()):
            texts = (self.what, self.why, self.remedy)
            yield Finding(self.severity, about, *(text.format(it=it, **subject) for text in texts))


_ROOT = Path("/")


def _text(name: str) -> str:
    """The text of a file of the kernel; empty if it cannot be read."""
    try:
        return (_ROOT / name).read_text(errors="replace")
    except OSError:
        return ""


def _strangers() -> tuple[str, str] | None:
    """MPS processes, and how their owners end them."""
    processes = mps_processes()
    named = (f"{p.role} of {p.owner} (process {p.pid}, pipes in {p.pipes})" for p in processes)
    ends = dict.fromkeys(each.how_to_end for each in processes)
    return (", ".join(named), "; ".join(ends)) if processes else None


# So many pieces of so many additions, and the share of the longest that is left out.
_PIECES, _ADDITIONS, _LONGEST_SHARE = 40, 200_000, 0.1
# So many times as long as the fastest piece.
_UNEVEN = 1.3
_LOOK_S, _MUCH_STOLEN_PCT = 0.5, 2.0


def _uneven_pace() -> float | None:
    """How many times as long as at its best the same work takes, if that is much.

    It floats over the cores as jobs do. CPU time and not the clock's: so the load does not count.
    """
    pieces_s = sorted(_piece_s() for _ in range(_PIECES))
    times = pieces_s[int(_PIECES * (1 - _LONGEST_SHARE))] / pieces_s[0]
    return times if times > _UNEVEN else None


def _piece_s() -> float:
    began = process_time()
    sum(number for number in range(_ADDITIONS))
    return process_time() - began


def _stolen_pct() -> float | None:
    """Share of the cores' time that the hypervisor takes just now, if it is much."""
    stolen_pct: float = psutil.cpu_times_percent(_LOOK_S).steal
    return stolen_pct if stolen_pct > _MUCH_STOLEN_PCT else None


def _governors() -> str:
    folder = "sys/devices/system/cpu"
    texts = {_text(f"{folder}/cpu{core}/cpufreq/scaling_governor") for core in allowed_cores()}
    return ", ".join(sorted({text.strip() for text in texts} - {"performance", ""}))


def _load() -> float | None:
    """Processes that wanted a core in the last minute, if they were many."""
    wanting = psutil.getloadavg()[0]
    return wanting if wanting > max(1.0, (os.cpu_count() or 1) / 4) else None


def _quota() -> tuple[float, int] | None:
    """Cores' time that a control group of either version allows, and the cores, if it is less."""
    both = _text("sys/fs/cgroup/cpu.max").split()
    if len(both) != 2:
        both = [_text(f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period")]
    try:
        quota, period = map(float, both)
    except ValueError:  # "max", or none
        return None
    cores = len(allowed_cores())
    return (quota / period, cores) if quota > 0 and 0 < quota / period < cores else None


def _foreign_cores() -> tuple[int, int] | None:
    ours, online = len(allowed_cores()), os.cpu_count() or 0
    return (ours, online) if ours < online else None


_SHM = "/dev/shm"
# Below this, loaders of a few workers run out of it: docker's default is 64 MiB.
_LITTLE_SHM_MIB = 1024


def _little_shm_mib() -> str:
    try:
        mib = psutil.disk_usage(_SHM).total / 2**20
    except OSError:
        return ""
    return f"{mib:.0f}" if mib < _LITTLE_SHM_MIB else ""


def _container() -> str | None:
    marks = {"docker": ".dockerenv", "podman": "run/.containerenv"}
    kinds = [kind for kind, mark in marks.items() if (_ROOT / mark).exists()]
    groups = re.findall("docker|containerd|kubepods|libpod|lxc", _text("proc/1/cgroup"))
    return next(iter(kinds + groups), None)


_CAP_SYS_ADMIN = 1 << 21  # linux/capability.h


def _without_rights() -> bool:
    rights = re.search(r"^CapEff:\s*([0-9a-f]+)", _text("proc/self/status"), re.M)
    return rights is None or not int(rights[1], 16) & _CAP_SYS_ADMIN


# Variables that change how CUDA shares or runs, wherever a user's processes inherit them.
_TELLING = ("CUDA_MPS_", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER")


_OF_HOST = (
    _Check(
        "blocks",
        _strangers,
        "MPS runs: {it[0]}",
        "it would disturb measurements, and serves one user at a time",
        "ask its owner to end it: {it[1]}",
    ),
    _Check(
        "blocks",
        lambda: which(CONTROL) is None,
        f"{CONTROL} is not installed",
        "jobs cannot share by MPS",
        "install the driver's compute utilities, or use time-slicing",
    ),
    _Check(
        "spoils",
        _stolen_pct,
        "the hypervisor took {it:.0f} % of the cores' time just now",
        "steps that wait for the host vary with it",
        "measure at another time, or on another host",
    ),
    _Check(
        "spoils",
        _uneven_pace,
        "the same work takes {it:.1f} times as long as at its fastest",
        "other virtual machines may use the same physical cores; steps that wait for the host "
        "vary with them",
        "profile such jobs more than once, or on cores of your own",
    ),
    _Check(
        "spoils",
        _governors,
        "cores choose their clocks by {it}",
        "a step takes longer on a core that was idle just before",
        "sudo cpupower frequency-set -g performance",
    ),
    _Check(
        "spoils",
        _load,
        "{it:.1f} processes wanted a core in the last minute",
        "jobs that wait for their host wait for other processes too",
        "measure when the host is idle, or leave the busy cores out with --cores",
    ),
    _Check(
        "spoils",
        _quota,
        "a control group allows the time of {it[0]:g} cores, and {it[1]} cores are visible",
        "processes on all of them are stopped in turn",
        "ask for more, or pass fewer cores with --cores",
    ),
    _Check(
        "note",
        _foreign_cores,
        "{it[0]} of {it[1]} cores are available to this process",
        "more jobs than that share cores",
        "ask the scheduler for more",
    ),
    _Check(
        "spoils",
        _little_shm_mib,
        "/dev/shm holds {it} MiB",
        "loader workers hand over batches there, and fail when it is full",
        "start the container with --shm-size=8g, or --ipc=host",
    ),
    _Check(
        "note",
        _container,
        "this is a container ({it})",
        "processes of other containers are not visible here, and an MPS daemon outside serves "
        "only clients that share its pipe folder and IPC namespace",
        "run what shares a GPU in one container, or with --ipc=host and that folder mounted",
    ),
    _Check(
        "note",
        _without_rights,
        "no administrator's rights",
        "advisor cannot set MIG mode and power caps",
        "ask for plans without them: advisor recommend --no-root",
    ),
    _Check(
        "note",
        lambda: ", ".join(sorted(name for name in os.environ if name.startswith(_TELLING))),
        "set here: {it}",
        "your own processes inherit it; measured processes do not inherit MPS settings",
        "unset the variables that you do not need",
    ),
)


def host_findings() -> Iterator[Finding]:
    """Find what on the host spoils measuring or sharing."""
    for check in _OF_HOST:
        yield from check.findings("host")


def _users(gpu: LiveGpu, _health: GpuHealth) -> str:
    """The processes on it and their users; drivers name processes of other containers too."""
    words = []
    for each in gpu.processes:
        try:
            user = psutil.Process(each.pid).username()
        except psutil.Error:
            user = "a user outside this container"
        words.append(f"{each.pid} of {user}")
    return ", ".join(words)


def _other_limit(_gpu: LiveGpu, health: GpuHealth) -> bool:
    limits_w = (health.power_limit_w, health.default_limit_w)
    return None not in limits_w and len({round(each or 0.0) for each in limits_w}) > 1


def _awaits_reset(gpu: LiveGpu, health: GpuHealth) -> str:
    pending = {
        "MIG mode changes": gpu.mig_pending not in (None, gpu.mig_enabled),
        "ECC changes": health.ecc is not None and health.ecc[0] != health.ecc[1],
        "bad memory waits to be replaced": health.remap_pending,
    }
    return ", ".join(what for what, waits in pending.items() if waits)


_VOLTA = (7, 0)
_SMI = "sudo nvidia-smi -i {gpu.index}"
_OF_GPU = (
    _Check(
        "blocks",
        _users,
        "process {it} uses it",
        "measurements with it would be wrong",
        "wait for it, or use another GPU. For jobs that may join it: advisor admit JOB --now",
    ),
    _Check(
        "note",
        lambda gpu, _: gpu.mig_enabled,
        "it is in MIG mode",
        "jobs are measured and share inside one of its instances",
        f"for the whole GPU: {_SMI} -mig 0",
    ),
    _Check(
        "spoils",
        _awaits_reset,
        "it waits for a reset: {it}",
        "its state is undefined until then",
        f"end all processes on it, then: {_SMI} --gpu-reset",
    ),
    _Check(
        "blocks",
        lambda gpu, _: gpu.compute_mode not in (None, "default"),
        "its compute mode is {gpu.compute_mode}",
        "it allows no process or a single one: time-slicing fails, and MPS works",
        f"{_SMI} -c DEFAULT",
    ),
    _Check(
        "spoils",
        lambda _, health: health.persistence is False,
        "persistence mode is off",
        "the driver unloads between runs: each start takes seconds, and settings are lost",
        f"{_SMI} -pm 1",
    ),
    _Check(
        "spoils",
        lambda _, health: health.time_slice not in (None, "default"),
        "time slices are set to {health.time_slice}",
        "the model was fitted to the default time slice",
        "sudo nvidia-smi compute-policy -i {gpu.index} --set-timeslice 0, or measure it: "
        "advisor calibrate",
    ),
    _Check(
        "spoils",
        lambda _, health: ", ".join(health.slowed_by),
        "its clocks are held down by {it}",
        "it is slower than the same GPU elsewhere",
        "for details: nvidia-smi -q -i {gpu.index} -d CLOCK,PERFORMANCE,POWER,TEMPERATURE",
    ),
    _Check(
        "spoils",
        _other_limit,
        "its power limit is {health.power_limit_w:g} W and not {health.default_limit_w:g} W",
        "predictions are for the GPU's own limit",
        f"{_SMI} --power-limit={{health.default_limit_w:g}}, or pass --power-cap "
        "{health.power_limit_w:g}",
    ),
    _Check(
        "spoils",
        lambda _, health: health.uncorrected_errors,
        "{it} memory errors were not corrected",
        "a process that reads them ends, and under MPS its co-located jobs end too",
        "reset the GPU; if the errors return, have it replaced",
    ),
    _Check(
        "note",
        lambda _, health: health.ecc == (False, False),
        "ECC is off",
        "memory errors stay unseen, also in results",
        f"{_SMI} -e 1, then a reset",
    ),
    _Check(
        "note",
        lambda gpu, _: gpu.counters == "nvml",
        "no counters show the activity of its SMs and memory",
        "it has no GPM, which came with Hopper, and DCGM does not answer: ranges are somewhat "
        "wider",
        "on a data-centre GPU: install datacenter-gpu-manager, then: sudo systemctl start "
        "nvidia-dcgm",
    ),
    _Check(
        "blocks",
        lambda _, health: (health.compute_capability or _VOLTA) < _VOLTA,
        "{gpu.product} is older than Volta",
        "its MPS has no limits, and no separate memory for each client",
        "use a newer GPU, or time-slicing",
    ),
    _Check(
        "blocks",
        lambda gpu, _: gpu.catalogue_key is None,
        "{gpu.product} is not in the catalogue, and its driver does not describe it",
        "advisor cannot predict for it",
        "update the driver",
    ),
)


def gpu_findings(gpu: LiveGpu | BrokenGpu) -> Iterator[Finding]:
    """Find what on a GPU spoils measuring or sharing."""
    about = f"GPU {gpu.index}"
    if isinstance(gpu, BrokenGpu):
        problem = gpu.problem.rstrip(".")
        yield Finding("blocks", about, problem, "no job can run on it", "see dmesg, or reboot")
        return
    health = gpu_health(gpu.index)
    for check in _OF_GPU:
        yield from check.findings(about, gpu=gpu, health=health)


_CLEARS = "advisor doctor --undo"


def leftover_findings() -> Iterator[Finding]:
    """Find each state file, folder and lock without a living owner, and the remedy."""
    for path in left_states():
        left = left_in(path)
        pids = jobs_left(left)
        changes = [line for line in left if not line.startswith("jobs ")]
        yield Finding(
            "spoils" if pids or changes else "note",
            "host",
            f"a script that ran a plan was killed: {path}{_living(pids)}",
            f"not undone: {', '.join(changes)}" if changes else "its remaining jobs do not start",
            f"{_CLEARS} ends its jobs and undoes what it changed",
        )
    for path in left_behind():
        pids = [*scripts_within(path), *mps_within(path)]
        yield Finding(
            "spoils" if pids else "note",
            "host",
            f"a killed measurement left {path}{_living(pids)}",
            "its programs hold the GPU" if pids else "it stops no other run",
            _CLEARS,
        )


def _living(pids: Sequence[int]) -> str:
    return f"; these processes of it live: {', '.join(map(str, pids))}" if pids else ""


def examine() -> list[Finding]:
    """Examine this machine, and change nothing; the worst finding is first."""
    findings = [*host_findings(), *leftover_findings()]
    try:
        for gpu in live_gpus():
            findings += gpu_findings(gpu)
    except AdvisorError as error:
        findings.append(
            Finding(
                "blocks",
                "host",
                f"no GPU here: {str(error).rstrip('.')}",
                (
                    "advisor cannot measure or run jobs here; predictions from stored profiles "
                    "need no GPU"
                ),
                "use a machine with a GPU, or give this container access to it",
            )
        )
    return sorted(findings, key=lambda each: _ORDER.index(each.severity))


def findings_text(findings: Sequence[Finding]) -> str:
    """Return the findings for people."""
    lines = [
        f"{each.severity:6}  {each.about}: {each.what}\n        {each.why}\n"
        f"        -> {each.remedy}"
        for each in findings
    ]
    return "\n".join([*lines, f"{counted(len(findings), 'finding')}. Nothing was changed."])


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings about a machine, the worst first."""

    findings: tuple[Finding, ...]

    @property
    @in_document
    def blocked(self) -> bool:
        return any(each.severity == "blocks" for each in self.findings)
