"""Profiles that were estimated for another GPU, as text and as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.prediction.gpu_transfer import estimate_spread
from advisor.report.documents import SCHEMA
from advisor.report.units import number, share
from advisor.terminal import clean
from advisor.workload.profile import Profile


def translations_text(found: Sequence[tuple[Profile, Profile]], paths: Sequence[Path]) -> str:
    """What ``advisor translate`` prints: a line for each profile, before and after."""
    return "\n".join(
        f"{clean(str(path))}: estimated from {before.gpu}, "
        f"a step {number(1000 * before.step_s)} ms there, {number(1000 * after.step_s)} ms on "
        f"{after.gpu}; GPU busy {share(before.busy_share)}, then {share(after.busy_share)}"
        for (before, after), path in zip(found, paths, strict=True)
    )


def translations_document(
    found: Sequence[tuple[Profile, Profile]], paths: Sequence[Path]
) -> dict[str, Any]:
    """What ``advisor translate --json`` prints."""
    return {
        "schema": SCHEMA,
        "profiles": [
            {
                "name": after.name,
                "gpu": after.gpu,
                "estimated_from": after.estimated_from,
                "step_s": after.step_s,
                "gpu_s": after.gpu_s,
                "host_s": after.host_s,
                "spread": estimate_spread(after),
                "file": str(path),
            }
            for (_, after), path in zip(found, paths, strict=True)
        ],
    }
