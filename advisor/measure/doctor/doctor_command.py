"""``advisor doctor``: what on this machine spoils measuring or sharing, and what to do about it."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from advisor.english import counted
from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.gpu_health import gpu_health
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.live_gpu import live_gpus
from advisor.measure.doctor.findings import Finding, Severity, host_findings, without_gpu
from advisor.measure.doctor.gpu_findings import gpu_findings
from advisor.measure.doctor.host_health import host_health
from advisor.measure.doctor.leftovers import leftover_findings
from advisor.terminal import clean

_ORDER: tuple[Severity, ...] = ("blocks", "spoils", "note")


def run(argv: Sequence[str]) -> int:
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
        "are off; note: good to know. Also starts as `python -m advisor.doctor`, which needs "
        "nvidia-ml-py only.",
        epilog="Exit codes: 0 nothing blocks, 2 wrong use, 4 something does.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser
