"""Where, when and with what a number was measured."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path

from advisor.running.device import Device, host_cpu
from advisor.workload.measured import Provenance


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
    """The first digits of a digest of `advisor.training`'s source, file by file."""
    folder = Path(__file__).resolve().parent.parent / "training"
    digest = sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def command_line(module: str, argv: Sequence[str]) -> str:
    """The command as it was typed, of each path only the last part."""
    return " ".join(
        ["python", "-m", module, *(Path(word).name if "/" in word else word for word in argv)]
    )
