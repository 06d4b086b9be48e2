"""Caches results by profile or by mix, since every mix with a profile needs them again."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from advisor.workload.profile import Profile

# Fitting converts a profile to the host of each run, and evaluation fits to the same thousand runs
# many times.
_MOST = 8192

_Rest = ParamSpec("_Rest")
_Found = TypeVar("_Found")


def once_a_profile(
    function: Callable[Concatenate[Profile, _Rest], _Found],
) -> Callable[Concatenate[Profile, _Rest], _Found]:
    """`function`, called once for each profile object and equal other arguments.

    The key is the object, not its value: hashing a trace takes as long as replaying it.
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
    """As `once_a_profile`, for several profiles in order; threads wait for each other."""
    # It keeps the profiles too, so that no other object gets their ids.
    known: dict[tuple[object, ...], tuple[Sequence[Profile], _Found]] = {}
    sought: dict[tuple[object, ...], Future[_Found]] = {}

    @wraps(function)
    def remembered(
        profiles: Sequence[Profile], /, *args: _Rest.args, **named: _Rest.kwargs
    ) -> _Found:
        key = (tuple(map(id, profiles)), args, *named.items())
        if (found := known.get(key)) is not None:
            return found[1]
        mine: Future[_Found] = Future()
        if (others := sought.setdefault(key, mine)) is not mine:
            return others.result()  # another thread is at it
        try:
            if (found := known.get(key)) is None:  # else one was, until just now
                if len(known) >= _MOST:
                    known.clear()
                found = known[key] = (tuple(profiles), function(profiles, *args, **named))
            mine.set_result(found[1])
        except BaseException as error:
            mine.set_exception(error)  # asked again, it is tried again
        finally:
            del sought[key]
        return mine.result()

    return remembered
