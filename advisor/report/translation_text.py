"""Profiles estimated for another GPU, as text and JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.prediction.estimate_doubt import estimate_range, estimate_spread
from advisor.report.documents import SCHEMA
from advisor.report.units import duration, seconds, share
from advisor.terminal import clean
from advisor.workload.profile import Profile


def translations_text(found: Sequence[tuple[Profile, Profile]], paths: Sequence[Path]) -> str:
    """What ``advisor translate`` prints: each profile as measured and as estimated."""
    lines = (_line(*each, path) for each, path in zip(found, paths, strict=True))
    return "\n".join([*lines, "In parentheses: nine of ten steps should fall between these."])


def _line(before: Profile, after: Profile, path: Path) -> str:
    step = estimate_range(after).scaled(after.step_s)
    how = "" if after.trace else "; not kernel by kernel, as it has no trace"
    return (
        f"{clean(str(path))}: estimated from {before.gpu}, a step {duration(before.step_s)} there, "
        f"{seconds(step)} on {after.gpu}; GPU busy {_busy(before)}, then "
        f"{_busy(after)}{how}"
    )


def _busy(profile: Profile) -> str:
    """As nvidia-smi shows it, so that who asked for a utilisation reads it again."""
    counters = profile.counters
    return share(profile.busy_share if counters is None else counters.gract)


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
