"""Where, when and with what a number was measured."""

import ast
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import LiveGpu
from advisor.measure.process.claimed_device import Device, host_cpu
from advisor.measure.process.cores import allowed_cores
from advisor.workload.measured import Provenance
from advisor.workload.staleness import Present

_ZOO = Path(__file__).resolve().parents[2] / "zoo"
_TRAINED = ("networks/*.py", "examples.py", "feed.py", "optimizers.py", "precision.py", "recipe.py")


@dataclass(frozen=True, slots=True)
class Origin:
    """What all figures of one command have in common.

    Attributes:
        device: What they are measured on.
        command: As `command_line` gives it.
        host_cores: Host cores that this process may use.
    """

    device: Device
    command: str
    host_cores: int

    def provenance(
        self,
        versions: Mapping[str, str | None],
        clocks_mhz: tuple[int | None, int | None],
    ) -> Provenance:
        """The provenance of what was measured just now.

        Args:
            versions: As a tenant gave them: only tenants import torch.
            clocks_mhz: Of SMs and memory while it ran.
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
    """The first digits of a digest of the code that says what is trained, and on what.

    Of networks, optimizers and data only, without comments and docstrings: what does not change a
    step does not change it.
    """
    digest = sha256()
    for path in sorted(path for part in _TRAINED for path in _ZOO.glob(part)):
        digest.update(path.name.encode() + _without_docstrings(path).encode())
    return digest.hexdigest()[:12]


def _without_docstrings(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def command_line(module: str, argv: Sequence[str]) -> str:
    """The command as it was typed, of each path only the last part."""
    return " ".join(
        ["python", "-m", module, *(Path(word).name if "/" in word else word for word in argv)]
    )


def present_machine(gpu: str) -> Present | None:
    """This machine, if its driver shows a GPU of the model `gpu`; else None."""
    from advisor.hardware.live_gpu import live_gpus

    try:
        found = live_gpus()
    except AdvisorError:
        return None
    drivers = [each.driver for each in found
               if isinstance(each, LiveGpu) and each.catalogue_key == gpu]  # fmt: skip
    if not drivers:
        return None
    return Present(
        driver=drivers[0],
        torch=_torch(),
        host_cpu=host_cpu(),
        host_cores=len(allowed_cores()),
    )


def _torch() -> str | None:
    """Its version, without importing it; None where jobs train in another environment."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None
