"""What profiling costs, as those profiles tell that recorded how long their parts took."""

from collections.abc import Collection, Iterable
from statistics import median

from advisor.validation.words import percent
from advisor.workload.profile import PartSeconds, Profile

PROBE = ("mps_s", "limits_s")


def median_seconds(profiles: Iterable[Profile], parts: Collection[str]) -> float | None:
    """Seconds that `parts` of a profile take together; None where no profile recorded all of them.

    Args:
        profiles: Measured alone.
        parts: Fields of `PartSeconds`.
    """
    known = [took for took in _recorded(profiles) if parts and _has(took, parts)]
    return median(_seconds(took, parts) for took in known) if known else None


def profiling_time_text(profiles: Iterable[Profile]) -> str:
    """What a whole profile takes, and the probe's share; empty where no profile recorded it."""
    recorded = _recorded(profiles)
    if not recorded:
        return ""
    whole_s = median(took.whole_s for took in recorded)
    said = (
        f"{len(recorded)} profiles recorded how long their parts took: {whole_s:.1f} s in all, in "
        "the median. Counters are read while the windows run; theirs are the seconds in which the "
        "driver answered. The trace's stand beside what kernels are like, and replay needs it too."
    )
    probed = [took for took in recorded if _has(took, PROBE)]
    if not probed:
        return said
    share = median(_seconds(took, PROBE) / took.whole_s for took in probed)
    return f"{said} The MPS probe takes {percent(share)} of a profile's time, in the median."


def _recorded(profiles: Iterable[Profile]) -> list[PartSeconds]:
    return [profile.took for profile in profiles if profile.took is not None]


def _has(took: PartSeconds, parts: Iterable[str]) -> bool:
    return all(getattr(took, part) is not None for part in parts)


def _seconds(took: PartSeconds, parts: Iterable[str]) -> float:
    return float(sum(getattr(took, part) for part in parts))
