"""An estimated footprint, for people and for programs."""

from typing import Any

from advisor.gpu.catalogue import Gpu
from advisor.training.overhead import Footprint


def footprint_document(found: Footprint) -> dict[str, Any]:
    """What ``advisor estimate-memory --json`` prints."""
    return {
        "schema": 1,
        "workload": found.workload,
        "gpu": found.gpu,
        "memory_mib": {"p05": found.p05_mib, "p50": found.p50_mib, "p95": found.p95_mib},
        "parts_mib": dict(found.parts_mib),
        "notes": list(found.notes),
    }


def footprint_text(found: Footprint, gpu: Gpu) -> str:
    """What it prints without."""
    lines = [
        f"{found.workload}, estimated, never run:",
        f"about {found.p50_mib:,.0f} MiB ({found.p05_mib:,.0f}-{found.p95_mib:,.0f}) of the "
        f"{gpu.usable_mib:,} of {gpu.key}",
        "",
        *(f"  {name:12} {size:10,.0f} MiB" for name, size in found.parts_mib.items()),
    ]
    if found.notes:
        lines += ["", "The range is wider than usual:", *(f"- {note}" for note in found.notes)]
    return "\n".join(lines)
