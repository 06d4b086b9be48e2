"""Where, when and with what a number was measured."""

import ast
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path

from advisor.measure.process.claimed_device import Device, host_cpu
from advisor.workload.measured import Provenance
from advisor.workload.spec import Script

# A variable that is set for a script; its value may be a secret.
_VARIABLE = re.compile(r"^((?:--\w+=)?[A-Za-z_]\w*=).*", re.DOTALL)

_ZOO = Path(__file__).resolve().parents[2] / "zoo"
_TRAINED = ("networks/*.py", "examples.py", "feed.py", "optimizers.py", "precision.py", "recipe.py")


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
    for path in sorted(path for part in _TRAINED for path in _ZOO.glob(part)):
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


def command_line(module: str, argv: Sequence[str]) -> str:
    """The command as typed, with only the last part of each path, and no value of a variable."""
    ours = argv.index("--") if "--" in argv else len(argv)
    words = [*(_VARIABLE.sub(r"\1...", word) for word in argv[:ours]), *argv[ours:]]
    return " ".join(
        ["python", "-m", module, *(Path(word).name if "/" in word else word for word in words)]
    )
