"""The device that a run asked for: which it is, that no other process uses it, and its meters."""

import ast
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, with_article
from advisor.hardware.gpu_state import NOT_METERED, Activity, LiveGpu
from advisor.hardware.gpus import gpu_meant
from advisor.hardware.mps import mps_processes
from advisor.measure.process import gpu_lock, wait_until
from advisor.workload.calibration import Present
from advisor.workload.profile import Provenance
from advisor.workload.spec import Script

_DEVICES = re.compile(r"(\d{1,3})-(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Device:
    """What tenants run on.

    Attributes:
        kind: As torch names it.
        uuid: The value of CUDA_VISIBLE_DEVICES; None for a CPU.
        key: Catalogue key, or ``"cpu"``.
        name: From its driver; for a CPU its model name.
        driver: None for a CPU.
    """

    kind: Literal["cuda", "cpu"]
    uuid: str | None
    key: str
    name: str
    driver: str | None


def device_at_hand(asked: str, *, on_mig: bool = False) -> Device:
    """The device that `asked` names: ``"cpu"``, an index or a UUID.

    Args:
        asked: As a user writes it.
        on_mig: Whether it is to be cut into MIG instances.

    Raises:
        GpuUnavailable: There is no such GPU, or it is in MIG mode and is not to be.
        InvalidInput: The catalogue does not list it, and its driver does not describe it.
    """
    if asked == "cpu":
        return Device("cpu", None, "cpu", host_cpu(), None)
    from advisor.hardware.live_gpu import live_gpu

    found = live_gpu(asked)
    if found.mig_enabled and not on_mig:
        raise GpuUnavailable(
            f"GPU {asked} is in MIG mode, in which jobs do not share it as measured here. Switch "
            f"MIG off (nvidia-smi -mig 0), or use another --device."
        )
    if found.catalogue_key is None:
        raise InvalidInput(
            f"GPU {asked} is {with_article(found.product)}, which the catalogue lacks, and its "
            f"driver does not say what is needed of it. Update the driver; GPUs older than Volta "
            f"cannot be answered for."
        )
    return Device("cuda", found.uuid, found.catalogue_key, found.product, found.driver)


def devices_in(text: str) -> tuple[str, ...]:
    """The devices in `text`, e.g. ``"0-3,5"``, UUIDs, or ``"cpu,cpu"``.

    Raises:
        InvalidInput: `text` is not a list of devices, or names a GPU twice.
    """
    devices = tuple(each for part in text.split(",") for each in _device_range(part.strip()))
    if "" in devices or not devices:
        raise InvalidInput(f"--devices {text!r}: write devices as 0-7, 0,2 or cpu")
    if "cpu" in devices:
        if set(devices) != {"cpu"}:
            raise InvalidInput(f"--devices {text}: either GPUs or cpu, not both")
    elif len(set(devices)) < len(devices):
        raise InvalidInput(f"--devices {text}: a GPU is listed twice")
    return devices


def _device_range(part: str) -> tuple[str, ...]:
    if match := _DEVICES.fullmatch(part):
        return tuple(map(str, range(int(match[1]), int(match[2]) + 1)))
    return (part,)


def refuse_other(device: Device, key: str | None) -> None:
    """Check that `device` is of the GPU model `key`, if one was asked for.

    Raises:
        InvalidInput: It is another model, or there is no such model.
    """
    if key is not None and gpu_meant(key).key != device.key:
        raise InvalidInput(
            f"--gpu {key}: this device is {device.key} ({device.name}). Leave --gpu out, or "
            f"choose another --device."
        )


def host_cpu() -> str:
    """The host CPU's model name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):  # absent on Arm
            return line.partition(":")[2].strip()
    return platform.machine()


@contextmanager
def claimed(device: Device, command: str) -> Iterator[None]:
    """Hold `device` while the block runs.

    Raises:
        GpuUnavailable: Another run holds it, another process uses it, or another user's MPS daemon
            runs.
    """
    if device.uuid is None:
        yield
        return
    with gpu_lock(device.uuid, command):
        refuse_busy(device.uuid)
        yield


def refuse_busy(uuid: str) -> None:
    """Check that nobody uses the GPU `uuid`, and no MPS daemon may serve it.

    Raises:
        GpuUnavailable: Somebody does; the message says whose it is.
    """
    refuse_strangers(uuid)
    _refuse_users(uuid)


def refuse_strangers(uuid: str) -> None:
    """Check that no MPS daemon or server runs that may serve the GPU `uuid`.

    Raises:
        GpuUnavailable: One does; the message says whose it is and how to end it.
    """
    for stranger in mps_processes():
        if stranger.serves(uuid):
            raise GpuUnavailable(
                f"an MPS {stranger.role} of {stranger.owner} (process {stranger.pid}, pipes in "
                f"{stranger.pipes}) runs on this machine and would serve or disturb what is "
                f"measured. Have its owner end it: {stranger.how_to_end}"
            )


def _refuse_users(uuid: str) -> None:
    from advisor.hardware.live_gpu import live_gpu

    # A run that has just ended may still be leaving.
    if not wait_until(lambda: not live_gpu(uuid).processes, 5):
        pids = ", ".join(str(each.pid) for each in live_gpu(uuid).processes)
        raise GpuUnavailable(
            f"process {pids} uses this GPU, so measurements on it would be wrong. Wait "
            f"for it, or use another --device."
        )


def power_readings_w(device: Device, readings: int, pause_s: float) -> list[float]:
    """Power of a claimed device, read several times; empty if it is not metered."""
    if device.uuid is None:
        return []
    from advisor.hardware.live_gpu import power_w_now

    found = []
    for _ in range(readings):
        found.append(power_w_now(device.uuid))
        sleep(pause_s)
    return [each for each in found if each is not None]


class Meter:
    """Reads what a device does over a stretch of time; all readings are None on a CPU."""

    def __init__(self, device: Device) -> None:
        self._uuid = device.uuid
        self._sampler = None
        if device.uuid is not None:
            from advisor.hardware.counters import ActivitySampler

            self._sampler = ActivitySampler(device.uuid)

    def begin(self) -> None:
        """Start metering."""
        if self._sampler is not None:
            self._sampler.begin()

    def end(self) -> Activity:
        """Activity since `begin`."""
        return NOT_METERED if self._sampler is None else self._sampler.end()

    def clocks_mhz(self) -> tuple[int | None, int | None]:
        """Clocks of SMs and memory at this moment."""
        if self._uuid is None:
            return None, None
        from advisor.hardware.live_gpu import clocks_mhz

        return clocks_mhz(self._uuid)

    def power_w(self) -> float | None:
        """Power of the whole device at this moment."""
        if self._uuid is None:
            return None
        from advisor.hardware.live_gpu import power_w_now

        return power_w_now(self._uuid)

    def memory_mib(self) -> dict[int, float]:
        """Device memory by pid at this moment."""
        if self._uuid is None:
            return {}
        from advisor.hardware.live_gpu import process_memory_mib

        return process_memory_mib(self._uuid)


def gpu_at_hand() -> str | None:
    """The key of this machine's first GPU that can be answered for; None without one."""
    keys = (each.catalogue_key for each in _gpus_here())
    return next((key for key in keys if key is not None), None)


def present_machine(gpu: str) -> Present | None:
    """This machine, if its driver shows a GPU of the model `gpu`; else None."""
    drivers = [each.driver for each in _gpus_here() if each.catalogue_key == gpu]
    if not drivers:
        return None
    from advisor.hardware.host_cores import allowed_cores
    from advisor.measure.worker import installed_version

    return Present(
        driver=drivers[0],
        torch=installed_version("torch"),
        host_cpu=host_cpu(),
        host_cores=len(allowed_cores()),
    )


def _gpus_here() -> list[LiveGpu]:
    """The GPUs of this machine that answer; none without a driver."""
    from advisor.hardware.live_gpu import live_gpus

    try:
        return [each for each in live_gpus() if isinstance(each, LiveGpu)]
    except AdvisorError:
        return []


# A variable that is set for a script; its value may be a secret.
_VARIABLE = re.compile(r"^((?:--\w+=)?[A-Za-z_]\w*=).*", re.DOTALL)

_ZOO = Path(__file__).resolve().parents[1] / "zoo"
_TRAINED = (
    "diffusion.py", "examples.py", "language.py", "recipes.py", "tables.py", "task.py", "vision.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """The provenance that all figures of one command share.

    Attributes:
        device: What they are measured on.
        command: From `command_line`.
        host_cores: Host cores that this process may use.
    """

    device: Device
    command: str
    host_cores: int

    def provenance(
        self, versions: Mapping[str, str | None], clocks_mhz: tuple[int | None, int | None]
    ) -> Provenance:
        """The provenance of a measurement that ended now.

        Args:
            versions: From a tenant: only tenants import torch.
            clocks_mhz: Of SMs and memory during the measurement.
        """
        return Provenance(
            device=self.device.name,
            driver=self.device.driver,
            cuda=versions.get("cuda"),
            torch=versions.get("torch") or "unknown",
            timm=versions.get("timm"),
            python=platform.python_version(),
            sm_clock_mhz=clocks_mhz[0],
            memory_clock_mhz=clocks_mhz[1],
            host_cpu=host_cpu(),
            host_cores=self.host_cores,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=self.command,
            recipes=recipes(),
        )


@cache
def recipes() -> str:
    """The first digits of a digest of the code that defines what is trained, and on which data.

    It covers networks, optimizers and data only, without comments and docstrings, so that it
    changes only when a step may change.
    """
    digest = sha256()
    for path in (_ZOO / name for name in _TRAINED):
        digest.update(path.name.encode() + _without_docstrings(path).encode())
    return digest.hexdigest()[:12]


def recipe_of_script(script: Script) -> str | None:
    """As `recipes`, of the file that a script runs; None if its command names none."""
    path = None if script.file is None else Path(script.folder, script.file)
    if path is None or not path.is_file():
        return None
    return sha256(path.read_bytes()).hexdigest()[:12]


def _without_docstrings(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def command_line(verb: str, argv: Sequence[str]) -> str:
    """The command as typed, with only the last part of each path, and no value of a variable."""
    ours = argv.index("--") if "--" in argv else len(argv)
    words = [*(_VARIABLE.sub(r"\1...", word) for word in argv[:ours]), *argv[ours:]]
    return " ".join(
        [
            "python",
            "-m",
            "advisor.measure",
            verb,
            *(Path(word).name if "/" in word else word for word in words),
        ]
    )
