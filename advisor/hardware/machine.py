"""A machine as values: cores, speed of its host, MPS, state of its GPUs, software, calibration.

`advisor.hardware.live_gpu` and `advisor.hardware.nvml` read the GPUs from their driver.
"""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from platform import node
from statistics import median
from time import time
from typing import Annotated, Literal

from advisor.errors import InvalidInput, counted
from advisor.files import units
from advisor.files.reading import cache_folder, is_file, read_bytes, shown
from advisor.files.records import parse_record

_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def allowed_cores(text: str | None = None) -> tuple[int, ...]:
    """Return the cores in `text`, e.g. ``"0-5,8"``, else all that this process may use.

    Raises:
        InvalidInput: `text` is not a list of cores, or names one that this process may not use.
    """
    ours = sorted(os.sched_getaffinity(0))
    if text is None:
        return tuple(ours)
    matches = [_RANGE.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        raise InvalidInput(f"--cores {text!r}: write cores as 0-15 or 0,2,4-7")
    bounds = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    wanted = sorted({core for first, last in bounds for core in range(first, last + 1)})
    if not wanted:
        raise InvalidInput(f"--cores {text}: the range is empty. Write the lower core first.")
    if foreign := sorted(set(wanted) - set(ours)):
        starts = [core for core in ours if core - 1 not in ours]
        ends = [core for core in ours if core + 1 not in ours]
        parts = zip(starts, ends, strict=True)
        short = ",".join(f"{at}" if at == end else f"{at}-{end}" for at, end in parts)
        raise InvalidInput(
            f"--cores {text}: core {foreign[0]} is not available to this process. Choose "
            f"among {short}."
        )
    return tuple(wanted)


def siblings_of(core: int) -> str:
    """Return the hardware threads of `core`'s physical core, as one text; or `core` itself."""
    try:
        topology = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        return topology.read_text().strip()
    except OSError:
        return str(core)


def split_cores(
    allowed: Sequence[int], parts: int, siblings: Callable[[int], str] = siblings_of
) -> tuple[tuple[int, ...], ...]:
    """Split cores equally for `parts` devices, with no physical core in two parts.

    `siblings` gives the same text for all threads of one physical core.

    Raises:
        InvalidInput: There are fewer physical cores than devices.
    """
    physical: dict[str, list[int]] = {}
    for core in allowed:
        physical.setdefault(siblings(core), []).append(core)
    cores = list(physical.values())
    size = len(cores) // parts
    if size == 0:
        raise InvalidInput(
            f"{counted(parts, 'device')} cannot have cores of their own: {len(cores)} physical "
            "cores are allowed. Allow more with --cores, or pass fewer GPUs with --device."
        )
    return tuple(
        tuple(sorted(core for threads in cores[first : first + size] for core in threads))
        for first in range(0, parts * size, size)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """The speed of a host at one moment.

    Attributes:
        check_s: Seconds of the fixed piece of host work (`advisor.measure.device`), mean over
            the processes that repeated it at once.
        busy: Number of these processes; they floated over `cores` cores.
        host: Name of the machine.
        made_at: Seconds of the wall clock.
    """

    check_s: units.Length
    busy: Annotated[int, units.Within(1, units.MOST_CORES)]
    cores: int
    host: str
    made_at: float


# One host changes its speed within minutes.
_RECENT_S = 600.0


def host_check_file() -> Path:
    """Return the file of this host's last check; machines often share home folders."""
    return cache_folder("host") / f"{node()}.json"


def recent_host_check() -> HostCheck | None:
    """Return this host's last check if it is younger than ten minutes."""
    if not is_file(file := host_check_file()):
        return None
    try:
        check = parse_record(HostCheck, read_bytes(file), shown(file))
    except InvalidInput:  # of another version
        return None
    return check if check.host == node() and 0 <= time() - check.made_at < _RECENT_S else None


CONTROL = "nvidia-cuda-mps-control"
Role = Literal["control", "server"]
_ROLES: dict[str, Role] = {CONTROL: "control", "nvidia-cuda-mps-server": "server"}


@dataclass(frozen=True, slots=True)
class MpsProcess:
    """A process of NVIDIA's Multi-Process Service: the daemon, or a server that runs clients.

    Attributes:
        owner: The user it runs as; jobs of other users wait until its server is idle.
        pipe_directory: Its ``CUDA_MPS_PIPE_DIRECTORY``; None if not set, or not to be read.
        gpus: UUIDs that ``CUDA_VISIBLE_DEVICES`` confines it to; empty: all, or not to be read.
    """

    pid: int
    role: Role
    owner: str
    pipe_directory: str | None
    gpus: tuple[str, ...] = ()

    def serves(self, uuid: str) -> bool:
        """Return whether it may serve clients of the GPU `uuid`."""
        return not self.gpus or uuid in self.gpus

    @property
    def pipes(self) -> str:
        """The folder of its pipes: the default, unless another is known."""
        return self.pipe_directory or "/tmp/nvidia-mps"

    @property
    def how_to_end(self) -> str:
        """The command by which its owner ends it."""
        return f"echo quit | CUDA_MPS_PIPE_DIRECTORY={self.pipes} {CONTROL}"


def client_variables(limit_pct: float | None, memory_cap_mib: int | None) -> dict[str, str]:
    """Return the variables that limit an MPS client on its device; None: not set."""
    variables = {}  # NVIDIA's MPS documentation, Environment Variables
    if limit_pct is not None:
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{limit_pct:g}"
    if memory_cap_mib is not None:
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_cap_mib}M"
    return variables


def mps_processes() -> tuple[MpsProcess, ...]:
    """Return the running MPS daemons and servers by pid; in a container, not those of the host."""
    import psutil  # only where there is a GPU

    processes = []
    for process in psutil.process_iter(["cmdline", "username"]):
        role = _ROLES.get(Path((process.info["cmdline"] or [""])[0]).name)
        if role is not None:
            variables: dict[str, str] = {}
            with suppress(psutil.Error):  # it belongs to another user, or has just ended
                variables = process.environ()
            gpus = variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
            by_uuid = tuple(gpus) if all(each.startswith("GPU-") for each in gpus) else ()
            pipes = variables.get("CUDA_MPS_PIPE_DIRECTORY")
            owner = process.info["username"] or "an unknown user"
            processes.append(MpsProcess(process.pid, role, owner, pipes, by_uuid))
    return tuple(processes)


ComputeMode = Literal["default", "exclusive-thread", "prohibited", "exclusive-process"]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a CUDA context; `memory_mib` is None if the driver would not say."""

    pid: int
    memory_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGpu:
    """One GPU of this machine at one moment; None if the driver does not say.

    Attributes:
        index: As NVML and nvidia-smi count; see `advisor.hardware.live_gpu` for CUDA.
        product: NVML's name, e.g. ``"NVIDIA H200"``.
        catalogue_key: For ``--gpu``; None if the catalogue lacks `product`, and its driver does not
            say what is needed of it.
        mig_enabled: Whether MIG mode is on; `mig_pending`: after the next reset; None without MIG.
        mps: The machine's MPS processes; empty if no daemon runs.
        counters: The best kind that the GPU has, as `Counters.source`.
        processes: Processes with a context on it, by pid.
        gpu_utilization: Share of the driver's last sample, 1/6 s to 1 s, in which a kernel ran.
    """

    index: int
    uuid: str
    product: str
    catalogue_key: str | None
    memory_total_mib: float
    memory_used_mib: float
    driver: str
    mig_enabled: bool | None
    mig_pending: bool | None
    compute_mode: ComputeMode | None
    mps: tuple[MpsProcess, ...]
    counters: Literal["gpm", "dcgm", "nvml"] | None
    processes: tuple[GpuProcess, ...]
    gpu_utilization: float | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class BrokenGpu:
    """A GPU that the driver lists, but that does not answer."""

    index: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Activity of a whole GPU over a run; of all its tenants together if it was shared.

    Attributes:
        source: ``"gpm"`` (NVML, Hopper and later), ``"dcgm"`` (DCGM, data-centre GPUs before) or
            ``"nvml"`` (utilisation only).
        gract: Share of time in which the graphics or compute engine was active.
        sm_active: Mean share of SMs with a warp; NVML alone measures neither it nor the next three.
        sm_occupancy: Mean share of warp slots in use.
        tensor_active: Share of cycles in which tensor cores worked.
        dram_active: Share of DRAM bandwidth in use.
        memory_utilization: Share of time in which memory was read or written, by nvidia-smi.
        pcie_rx_mib_s: Traffic into the GPU; `pcie_tx_mib_s` is out of it.
    """

    source: Literal["gpm", "dcgm", "nvml"]
    gract: units.Share
    sm_active: units.Share | None = None
    sm_occupancy: units.Share | None = None
    tensor_active: units.Share | None = None
    dram_active: units.Share | None = None
    memory_utilization: units.Share | None = None
    pcie_rx_mib_s: units.MibPerSecond | None = None
    pcie_tx_mib_s: units.MibPerSecond | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The activity of a whole GPU in a window of `seconds`; None without a counter for it."""

    counters: Counters | None
    power_w: float | None
    energy_j: float | None
    seconds: float


NOT_METERED = Activity(counters=None, power_w=None, energy_j=None, seconds=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The machine, time and software with which a number was measured.

    Attributes:
        device: Its name as the driver gives it.
        host_cores: Cores that the measuring process could choose from.
        date: UTC, ISO 8601, to the second.
        command: The command line, without paths.
        recipes: Digest of the code of workloads, equal where the work is; None in older records.
        host: Name of the machine; None in older records.
    """

    device: str
    driver: str | None
    cuda: str | None
    torch: str
    timm: str | None
    python: str
    sm_clock_mhz: units.Mhz | None
    memory_clock_mhz: units.Mhz | None
    host_cpu: str
    host_cores: Annotated[int, units.Within(0, units.MOST_CORES)]
    date: str
    command: str
    recipes: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class LimitedContext:
    """Size of the CUDA context of an MPS client that may use `sms` SMs."""

    limit_pct: units.Percent
    sms: units.Sms
    context_mib: units.Mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Device memory beyond tensors, MiB.

    Attributes:
        driver_mib: Memory in use while nothing runs on the GPU.
        plain_mib: CUDA context of a small network in training; None if the driver does not say.
        mps_mib: The same for an MPS client; None, as what follows, if MPS does not run here.
        sms: SMs that a client without a limit may use.
        limited: Contexts of clients with limits.
        mps_server_mib: Memory of the MPS server.
    """

    driver_mib: units.Mib
    plain_mib: units.Mib | None
    mps_mib: units.Mib | None
    sms: units.Sms | None
    limited: tuple[LimitedContext, ...]
    mps_server_mib: units.Mib | None

    @property
    def per_sm_mib(self) -> float | None:
        """MiB saved for each SM that a limit takes away; None if no limit was tried."""
        if self.mps_mib is None or self.sms is None:
            return None
        saved = [
            (self.mps_mib - each.context_mib) / (self.sms - each.sms)
            for each in self.limited
            if each.sms < self.sms
        ]
        return max(0.0, median(saved)) if saved else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """The cost of turns between two processes that each repeat one kernel on the GPU.

    Attributes:
        kernel_s: Of the kernel alone.
        overhead: Share of the time in which neither advances; by noise slightly below 0.
        slice_s: How long one keeps the GPU; None if the kernels were too long to show it.
        switch_s: Of a change from one to the other; None as `slice_s`.
    """

    kernel_s: units.Seconds
    overhead: Annotated[float, units.Within(-0.999, 0.999)]
    slice_s: units.Seconds | None
    switch_s: Annotated[float, units.Within(-units.DAY_S, units.DAY_S)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The calibration of one machine, with a `switching` for each kernel tried.

    Attributes:
        gpu: Catalogue key.
        idle_power_w: Least power while nothing ran; None if not metered.
        provenance: Clocks are those under these kernels.
    """

    gpu: str
    contexts: Contexts
    switching: tuple[Switching, ...]
    idle_power_w: units.Watts | None
    provenance: Provenance
    schema: units.Schema = 1
