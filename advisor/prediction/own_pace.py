"""A job at the pace that the user's own runs of it showed.

A profile is of one minute on some core, and runs of the same job on the user's machine show more
minutes: of eight scripts on an H100 (43 steps), one was profiled a third slower than it ran in all
of its runs, and a check of the host did not tell. Where the GPU sets the pace, what is wrong is
not the profile but what was predicted of jobs together, and it is alike from mates to mates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from advisor.prediction.cache import once_a_profile
from advisor.prediction.host_transfer import on_host
from advisor.sharing import Mode
from advisor.workload.plausible import check_number
from advisor.workload.profile import Profile

_MOST = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep:
    """What runs in one way of sharing showed of a job that fills the GPU.

    Attributes:
        factor: Seconds of a step in these runs over those predicted from profiles.
        runs: In how many runs.
    """

    factor: float
    runs: int

    def __post_init__(self) -> None:
        check_number("factor on steps in runs of your own", self.factor, _MOST, 1 / _MOST)

    def factor_at(self, slowdown: float) -> float:
        """`factor` on a step predicted `slowdown` times as long as alone; none gets shorter."""
        return max(self.factor, min(1.0, 1 / slowdown))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPace:
    """What runs of a job showed of its pace.

    Attributes:
        slowdown: Seconds of its host path in these runs over those in the profile; 1 where no run
            showed that.
        runs: In how many runs the host set the job's pace.
        profiled: Date of the profile, one that was made since is not converted; None: not known.
        beside: By mode: how its steps beside others were, if it fills the GPU.
    """

    slowdown: float
    runs: int
    profiled: str | None
    beside: dict[Mode, OwnStep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("slowdown in runs of your own", self.slowdown, _MOST, 1 / _MOST)


def at_own_pace(profile: Profile, paces: Mapping[str, OwnPace]) -> Profile:
    """`profile` with the host path of the user's own runs of it, if any showed that."""
    found = pace_of(profile, paces)
    return _converted(profile, found.slowdown) if found and found.runs else profile


def pace_of(profile: Profile, paces: Mapping[str, OwnPace]) -> OwnPace | None:
    """What the user's own runs say of `profile`; None where there are none, or of another."""
    found = paces.get(profile.name)
    return found if found and found.profiled == date_of(profile) else None


def step_of(profile: Profile, paces: Mapping[str, OwnPace], mode: Mode) -> OwnStep | None:
    """What the user's own runs say of steps of `profile` beside others in `mode`, if any do."""
    found = pace_of(profile, paces)
    return None if found is None else found.beside.get(mode)


def date_of(profile: Profile) -> str | None:
    """When `profile` was measured; None where nobody wrote that down."""
    return None if profile.provenance is None else profile.provenance.date


@once_a_profile
def _converted(profile: Profile, slowdown: float) -> Profile:
    """`profile` with that slowdown; a check of the host, which these runs had too, says no more."""
    return replace(on_host(profile, slowdown), host_check_s=None)
