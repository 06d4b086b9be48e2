"""This machine: the device of a run, its meters, its host, and the provenance of figures."""

import ast
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep, time
from typing import Literal

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, with_article
from advisor.files.reading import is_file
from advisor.files.writing import write_whole
from advisor.hardware.gpus import gpu_meant
from advisor.hardware.live_gpu import (
    clocks_mhz,
    gpus_here,
    live_gpu,
    mig_devices,
    power_w_now,
    process_memory_mib,
)
from advisor.hardware.machine import (
    NOT_METERED,
    Activity,
    HostCheck,
    Provenance,
    allowed_cores,
    host_check_file,
    mps_processes,
)
from advisor.hardware.nvml import ActivitySampler
from advisor.measure.inside import FOLDER, installed_version
from advisor.measure.process import wait_until
from advisor.workload.profile import Memory
from advisor.workload.profile_checks import Present
from advisor.workload.spec import Script, masked_words, python_of

_DEVICES = re.compile(r"(\d{1,3})-(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, MIG device or CPU on which tenants run; of a CPU `uuid` and `driver` are None.

    `kind` is torch's word for it, `key` the catalogue's or ``"cpu"``, and `name` its model.
    """

    kind: Literal["cuda", "cpu"]
    uuid: str | None
    key: str
    name: str
    driver: str | None


def find_device(name: str, *, on_mig: bool = False) -> Device:
    """Return the device that a user calls `name`: ``"cpu"``, an index or a UUID.

    Runs of several plans on one CPU call it ``"cpu-HOST-DEVICE"``, by the GPU that they try out.

    A GPU in MIG mode stands for its only MIG device, unless a plan is `on_mig`. Not yet run on MIG
    hardware.

    Raises:
        GpuUnavailable: There is no such GPU, or it is in MIG mode with no MIG device or several.
        InvalidInput: The catalogue does not list it, and its driver does not describe it.
    """
    if name.partition("-")[0] == "cpu":
        return Device("cpu", None, "cpu", host_cpu(), None)
    live = live_gpu(name)
    if live.mig_enabled and not on_mig:
        parts = mig_devices(name)
        if len(parts) == 1:
            return find_device(*parts)
        named = ", ".join(f"{uuid} ({profile})" for uuid, profile in parts.items())
        remedy = f"Name one: --device {named}" if parts else "Let root make one"
        raise GpuUnavailable(
            f"GPU {name} is in MIG mode, where jobs use one of its {len(parts)} MIG devices. "
            f"{remedy}, or switch MIG off: sudo nvidia-smi -i {live.index} -mig 0."
        )
    if live.catalogue_key is None:
        raise InvalidInput(
            f"GPU {name} is {with_article(live.product)}, which is not in the catalogue, and its "
            "driver does not report enough about it. Update the driver; GPUs older than Volta are "
            "not supported."
        )
    return Device("cuda", live.uuid, live.catalogue_key, live.product, live.driver)


def devices_in(text: str) -> tuple[str, ...]:
    """Return the devices in `text`, e.g. ``"0-3,5"``, UUIDs, or ``"cpu,cpu"``; no GPU twice."""
    devices: list[str] = []
    for part in map(str.strip, text.split(",")):
        if match := _DEVICES.fullmatch(part):
            devices += map(str, range(int(match[1]), int(match[2]) + 1))
        else:
            devices.append(part)
    if "" in devices or not devices:
        raise InvalidInput(f"--device {text!r}: write devices as 0-7, 0,2 or cpu")
    if "cpu" in devices:
        if set(devices) != {"cpu"}:
            raise InvalidInput(f"--device {text}: GPUs and cpu exclude each other")
    elif len(set(devices)) < len(devices):
        raise InvalidInput(f"--device {text}: a GPU is listed twice")
    return tuple(devices)


def refuse_other(device: Device, key: str | None) -> None:
    """Check that `device` is of the GPU model `key`, unless that is None."""
    if key is not None and gpu_meant(key).key != device.key:
        raise InvalidInput(
            f"--gpu {key}: this device is {device.key} ({device.name}). Leave --gpu out, or "
            f"choose another --device."
        )


def host_cpu() -> str:
    """Return the host CPU's model name."""
    name = re.search(r"^model name.*?:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return name[1].strip() if name else platform.machine()  # absent on Arm


def refuse_busy(uuid: str) -> None:
    """Check that no process uses the GPU `uuid`, and no MPS daemon or server may serve it.

    Raises:
        GpuUnavailable: One does; the message names it, and its owner and how to end it.
    """
    for stranger in mps_processes():
        if stranger.serves(uuid):
            raise GpuUnavailable(
                f"an MPS {stranger.role} of {stranger.owner} (process {stranger.pid}, pipes in "
                f"{stranger.pipes}) runs on this machine and would disturb the measurement. Ask "
                f"its owner to end it: {stranger.how_to_end}"
            )
    # A run that has just ended may still be leaving.
    if not wait_until(lambda: not live_gpu(uuid).processes, 5):
        pids = ", ".join(str(each.pid) for each in live_gpu(uuid).processes)
        raise GpuUnavailable(
            f"process {pids} uses this GPU and would disturb the measurement. Wait for it, or use "
            "another --device."
        )


def power_readings_w(device: Device, readings: int, pause_s: float) -> list[float]:
    """Return the power of a claimed device, read several times; empty if it is not metered."""
    if device.uuid is None:
        return []
    powers_w = []
    for _ in range(readings):
        powers_w.append(power_w_now(device.uuid))
        sleep(pause_s)
    return [power_w for power_w in powers_w if power_w is not None]


Clocks = tuple[int | None, int | None]
"""Clocks of SMs and memory, MHz; None if not metered."""


class Meter:
    """Reads what a device does over a stretch of time; all readings are None on a CPU."""

    def __init__(self, device: Device) -> None:
        self._uuid = device.uuid
        self._sampler = None if device.uuid is None else ActivitySampler(device.uuid)

    def begin(self) -> None:
        """Start metering."""
        if self._sampler is not None:
            self._sampler.begin()

    def end(self) -> Activity:
        """Return the activity since `begin`."""
        return NOT_METERED if self._sampler is None else self._sampler.end()

    def clocks_mhz(self) -> Clocks:
        """Return the clocks at this moment."""
        return (None, None) if self._uuid is None else clocks_mhz(self._uuid)

    def power_w(self) -> float | None:
        """Return the power of the whole device at this moment."""
        return None if self._uuid is None else power_w_now(self._uuid)

    def memory_mib(self) -> dict[int, float]:
        """Return the device memory by pid at this moment."""
        return {} if self._uuid is None else process_memory_mib(self._uuid)


def memory_record(
    reported: Mapping[str, float | None], on_device_mib: float | None
) -> Memory | None:
    """Return the record of a tenant's memory; None if neither it nor the driver reports any.

    `reported` is from `advisor.measure.inside.clocks.memory_mib`, with None for a program that
    reports nothing; `on_device_mib` is the memory of its process from the driver.
    """
    reserved_mib = reported["reserved_mib"]
    if reserved_mib is None and on_device_mib is None:
        return None
    # A driver that reports less than torch holds counts something else (seen for MPS clients before
    # Volta): then its figure is not used.
    trusted = on_device_mib is not None and on_device_mib >= (reserved_mib or 0.0)
    return Memory(
        allocated_mib=None if reserved_mib is None else reported["allocated_mib"],
        reserved_mib=reserved_mib,
        device_mib=on_device_mib if trusted else None,
    )


def present_machine(gpu: str) -> Present | None:
    """Return this machine, if its driver shows a GPU of the model `gpu`; else None."""
    drivers = [live.driver for live in gpus_here() if live.catalogue_key == gpu]
    if not drivers:
        return None
    return Present(
        driver=drivers[0],
        torch=installed_version("torch"),
        host_cpu=host_cpu(),
        host_cores=len(allowed_cores()),
    )


# A variable that is set for a script; its value may be a secret.
_VARIABLE = re.compile(r"^((?:--[\w-]+=)?[A-Za-z_]\w*=).*", re.DOTALL)

_ZOO = Path(__file__).resolve().parents[1] / "zoo"
_TRAINED = ("language.py", "recipes.py", "tables.py", "task.py", "vision.py")


@dataclass(frozen=True, slots=True)
class Origin:
    """The provenance that all figures of one command share; `command` is from `command_line`."""

    device: Device
    command: str
    host_cores: int

    def provenance(self, versions: Mapping[str, str | None], clocks_mhz: Clocks) -> Provenance:
        """Return the provenance of a measurement that ended now; tenants know the `versions`."""
        return Provenance(
            device=self.device.name,
            driver=self.device.driver,
            cuda=versions.get("cuda"),
            torch=versions.get("torch") or "unknown",
            timm=versions.get("timm"),
            python=versions.get("python") or platform.python_version(),
            sm_clock_mhz=clocks_mhz[0],
            memory_clock_mhz=clocks_mhz[1],
            host_cpu=host_cpu(),
            host_cores=self.host_cores,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=self.command,
            recipes=recipes(),
            host=platform.node(),
        )


@cache
def recipes() -> str:
    """Return the first digits of a digest of the code of networks, optimizers and data.

    Comments and docstrings are left out, so that it changes only when a step may change.
    """
    digest = sha256()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for name in _TRAINED:
        tree = ast.parse((_ZOO / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, documented) and ast.get_docstring(node):
                node.body[0] = ast.Pass()
        digest.update(name.encode() + ast.unparse(tree).encode())
    return digest.hexdigest()[:12]


def recipe_of_script(script: Script) -> str | None:
    """Return the first digits of a digest of a script's file; None if it names no file."""
    program = script.file or ""
    for name in (program, f"{program.replace('.', '/')}.py"):  # a file, or else a module
        if is_file(path := Path(script.folder, name)):
            return sha256(path.read_bytes()).hexdigest()[:12]
    return None


def command_line(verb: str, argv: Sequence[str]) -> str:
    """Return the command as typed, with the last part of each path, and no variable's value."""
    ours = argv.index("--") if "--" in argv else len(argv)
    words = [*(_VARIABLE.sub(r"\1...", word) for word in argv[:ours]), *argv[ours:]]
    names = (Path(word).name if "/" in word else word for word in words)
    return " ".join(["advisor", verb, *names])


# A first import of torch from a slow disk takes a minute.
_PATIENCE_S = 120.0

_NO_PYTHON = (
    "no job names its Python{}, and the Python of advisor has no torch. Profile a script by its "
    "Python, `advisor profile -- /path/to/env/bin/python train.py`, or add --no-check-host"
)


def check_host(at_once: int, script: Script | None, say: Callable[[str], None]) -> HostCheck | None:
    """Check the host with `at_once` busy processes, at most one a core, and keep the result.

    The Python that the command of `script` names does the work; without one, advisor's own. If
    that fails, `say` why in a line and return None.
    """
    cores = len(os.sched_getaffinity(0))
    busy = min(at_once, cores)
    python = None if script is None else python_of(script.command)
    variables = {**os.environ, **({} if script is None else script.environment)}
    if python is None and find_spec("torch") is None:
        named = "" if script is None else f" (`{shlex.join(masked_words(script.command))[:80]}`)"
        say(f"host not checked: {_NO_PYTHON.format(named)}")
        return None
    try:
        with TemporaryDirectory() as folder:
            Path(folder, "advisor_inside").symlink_to(FOLDER)
            paths = filter(None, [folder, variables.get("PYTHONPATH")])
            work = "from advisor_inside.clocks import check_cores; check_cores()"
            done = subprocess.run(
                [python or sys.executable, "-c", work, str(busy)],
                env=variables | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
                cwd="/" if script is None else script.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=True,
            )
        check_s = float(done.stdout.split()[-1])
    except (AdvisorError, subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        *_, why = (getattr(error, "stderr", None) or str(error)).strip().splitlines() or [""]
        say(f"host not checked: {why}")
        return None
    check = HostCheck(check_s=check_s, busy=busy, cores=cores, host=platform.node(), made_at=time())
    with suppress(AdvisorError, OSError):  # it is of use now, too
        write_whole(host_check_file(), json.dumps(asdict(check)) + "\n")
    return check
