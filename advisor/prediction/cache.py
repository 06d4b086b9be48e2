"""What follows from one profile by itself is worked out once: every mix with it asks again."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from advisor.workload.profile import Profile

# Fitting sees a profile anew for each run, on the host of that run, and evaluation fits to the same
# thousand runs again and again.
_MOST = 8192

_Rest = ParamSpec("_Rest")
_Found = TypeVar("_Found")


def once_a_profile(
    function: Callable[Concatenate[Profile, _Rest], _Found],
) -> Callable[Concatenate[Profile, _Rest], _Found]:
    """`function`, asked once for the same profile object and equal other arguments.

    The object and not its value is the key: hashing a trace takes as long as replaying it.
    """

    def of_one(profiles: Sequence[Profile], /, *args: _Rest.args, **named: _Rest.kwargs) -> _Found:
        return function(profiles[0], *args, **named)

    of_mix = once_a_mix(of_one)

    @wraps(function)
    def remembered(profile: Profile, /, *args: _Rest.args, **named: _Rest.kwargs) -> _Found:
        return of_mix((profile,), *args, **named)

    return remembered


def once_a_mix(
    function: Callable[Concatenate[Sequence[Profile], _Rest], _Found],
) -> Callable[Concatenate[Sequence[Profile], _Rest], _Found]:
    """As `once_a_profile`, of several profiles in their order."""
    known: dict[tuple[object, ...], tuple[Sequence[Profile], _Found]] = {}

    @wraps(function)
    def remembered(
        profiles: Sequence[Profile], /, *args: _Rest.args, **named: _Rest.kwargs
    ) -> _Found:
        key = (tuple(map(id, profiles)), args, *named.items())
        if (found := known.get(key)) is None:
            if len(known) >= _MOST:
                known.clear()
            # Kept beside its answer, a profile's id stays its own.
            found = known[key] = tuple(profiles), function(profiles, *args, **named)
        return found[1]

    return remembered
