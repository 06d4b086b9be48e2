"""What profiles lack, and why intervals are therefore wider; what measuring it would tell."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fewer_sms import memory_tells
from advisor.sharing import Arrangement
from advisor.sharing.traversal import instance_sets, together
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a profile: whether a profile lacks it, and what it tells about a job."""

    lacks: Callable[[Profile], bool]
    tells: str


def _lacks_counters(profile: Profile) -> bool:
    return profile.counters is None or profile.counters.sm_active is None


_PARTS: Mapping[str, _Part] = {
    "utilisation": _Part(
        lambda each: each.gpu_s is None and each.trace is None, "how long it keeps the GPU busy"
    ),
    "memory utilisation": _Part(
        lambda each: (
            each.trace is None
            and (each.counters is None or each.counters.memory_utilization is None)
        ),
        "what a slice costs it",
    ),
    "kernel trace": _Part(lambda each: each.trace is None, "how many SMs it leaves to others"),
    "counters of SMs": _Part(
        _lacks_counters, "how it loads SMs and memory, by GPM or, before Hopper, by DCGM"
    ),
    "MPS probe": _Part(lambda each: each.mps is None, "what MPS and its limits cost it alone"),
}
_SIDE_BY_SIDE = ("utilisation", "kernel trace", "counters of SMs", "MPS probe")
# Jobs in turn have the SMs to themselves, as a job alone has those of its instance or limit.
_ON_OWN_SMS = ("utilisation", "kernel trace")
_ALONE = (
    "ranges are narrower than under MPS, for nobody else is on an instance, and memory utilisation "
    "tells what fewer SMs and less bandwidth cost"
)
_WIDE = {"kernel trace", "memory utilisation"}


def without_utilisation(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Names of the `profiles` that do not tell how long their jobs keep the GPU busy."""
    lacks = _PARTS["utilisation"].lacks
    return tuple(dict.fromkeys(each.name for each in profiles if lacks(each)))


def why_wide(profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu) -> str | None:
    """Why intervals for `profiles` under `sharing` are wide; None if nothing is missing.

    Names the missing parts that matter here, and what each would tell. For bare numbers on MIG
    instances it says why intervals are narrower than elsewhere.
    """
    lacking: dict[tuple[str, ...], list[str]] = {}
    for each in {profile.name: profile for profile in profiles}.values():
        missing = tuple(
            part for part in _bearing_on(profiles, sharing, gpu) if _PARTS[part].lacks(each)
        )
        if missing:
            lacking.setdefault(missing, []).append(each.name)
    if not lacking:
        bare = sharing.mode == "mig" and any(each.trace is None for each in profiles)
        return _ALONE if bare else None
    wide = "wide" if any(_WIDE.intersection(each) for each in lacking) else "somewhat wider"
    listed = "; ".join(
        f"{', '.join(sorted(names))} has no {_parts(missing)}" for missing, names in lacking.items()
    )
    return f"ranges are {wide}, for {listed}"


def briefly(said: str) -> str:
    """What `why_wide` says, without what each part would tell."""
    return re.sub(r" \([^()]*\)", "", said)


def _parts(missing: Sequence[str]) -> str:
    return ", no ".join(f"{part} ({_PARTS[part].tells})" for part in missing)


def _bearing_on(profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu) -> tuple[str, ...]:
    """The parts of a profile that narrow intervals for these jobs under `sharing`."""
    if any(True for _ in instance_sets(sharing)):
        return ("memory utilisation",) if memory_tells(gpu) else _ON_OWN_SMS
    shared = together(sharing)
    if shared is None:
        return ()
    if len(profiles) == 1:
        return _ON_OWN_SMS if shared.limits else ()
    return _SIDE_BY_SIDE if shared.under_mps else _ON_OWN_SMS
