"""The time that profiling takes, from the profiles that recorded it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median

from advisor.validate.score_tables import percent
from advisor.workload.profile import PartSeconds, Profile

PROBE = ("mps_s", "limits_s")


def median_seconds(profiles: Iterable[Profile], parts: Collection[str]) -> float | None:
    """Seconds that `parts` of a profile take together; None if no profile recorded all of them.

    Args:
        profiles: Measured alone.
        parts: Fields of `PartSeconds`.
    """
    known = [took for took in _recorded(profiles) if parts and _has(took, parts)]
    return median(_seconds(took, parts) for took in known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingTime:
    """What a whole profile takes.

    Attributes:
        profiles: Those that recorded how long their parts took.
        whole_s: Their median.
        probe_share: Median share of the MPS probe in it, 0..1; None if none was recorded.
    """

    profiles: int
    whole_s: float
    probe_share: float | None


def profiling_time(profiles: Iterable[Profile]) -> ProfilingTime | None:
    """What a whole one of `profiles` takes; None if none recorded it."""
    recorded = _recorded(profiles)
    if not recorded:
        return None
    shares = [_seconds(took, PROBE) / took.whole_s for took in recorded if _has(took, PROBE)]
    return ProfilingTime(
        profiles=len(recorded),
        whole_s=median(took.whole_s for took in recorded),
        probe_share=median(shares) if shares else None,
    )


def profiling_time_text(found: ProfilingTime) -> str:
    """The same in words."""
    said = (
        f"{found.profiles} profiles recorded how long their parts took: {found.whole_s:.1f} s in "
        "all, in the median. Counters are read while the windows run; theirs are the seconds in "
        "which the driver answered. The trace's stand beside what kernels are like, and replay "
        "needs it too."
    )
    if found.probe_share is None:
        return said
    probe = percent(found.probe_share)
    return f"{said} The MPS probe takes {probe} of a profile's time, in the median."


def _recorded(profiles: Iterable[Profile]) -> list[PartSeconds]:
    return [profile.took for profile in profiles if profile.took is not None]


def _has(took: PartSeconds, parts: Iterable[str]) -> bool:
    return all(getattr(took, part) is not None for part in parts)


def _seconds(took: PartSeconds, parts: Iterable[str]) -> float:
    return float(sum(getattr(took, part) for part in parts))
