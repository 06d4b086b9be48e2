"""A job at the pace that the user's own runs of it showed, where its host sets that.

A profile is of one minute on some core, and runs of the same job on the user's machine show more
minutes: of eight scripts on an H100 (43 steps), one was profiled a third slower than it ran in all
of its runs, and a check of the host did not tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.prediction.cache import once_a_profile
from advisor.prediction.host_transfer import on_host
from advisor.workload.plausible import check_number
from advisor.workload.profile import Profile

_MOST = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPace:
    """What runs of a job showed of its host path.

    Attributes:
        slowdown: Seconds that it took in these runs over those in the profile.
        runs: In how many runs the host set the job's pace.
        profiled: Date of the profile, one that was made since is not converted; None: not known.
    """

    slowdown: float
    runs: int
    profiled: str | None

    def __post_init__(self) -> None:
        check_number("slowdown in runs of your own", self.slowdown, _MOST, 1 / _MOST)


def at_own_pace(profile: Profile, paces: Mapping[str, OwnPace]) -> Profile:
    """`profile` as in the user's own runs of it, if there are any."""
    found = pace_of(profile, paces)
    return profile if found is None else _converted(profile, found.slowdown)


def pace_of(profile: Profile, paces: Mapping[str, OwnPace]) -> OwnPace | None:
    """What the user's own runs say of `profile`; None where there are none, or of another."""
    found = paces.get(profile.name)
    return found if found and found.profiled == date_of(profile) else None


def date_of(profile: Profile) -> str | None:
    """When `profile` was measured; None where nobody wrote that down."""
    return None if profile.provenance is None else profile.provenance.date


@once_a_profile
def _converted(profile: Profile, slowdown: float) -> Profile:
    """`profile` with that slowdown; a check of the host, which these runs had too, says no more."""
    return replace(on_host(profile, slowdown), host_check_s=None)
