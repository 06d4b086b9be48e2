"""Which sets of MIG instances one GPU can hold at once, and where in its memory each lies.

A set is valid where each instance starts at one of its profile's places, no two share a memory
slice, no profile passes its count, and at most one has the media engines (``+me``); drivers
before R510 refuse a 4g beside a 3g as well (NVIDIA MIG User Guide, Concepts, Partitioning). The
sum of compute slices binds on no known GPU beyond that.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

from advisor.errors import NothingFits
from advisor.gpu.catalogue import Gpu, MigProfile
from advisor.sharing import Instance

_R510 = 510
_Placed = tuple[MigProfile, int]


def place(
    gpu: Gpu, instances: Sequence[Instance], driver_branch: int = _R510
) -> tuple[Instance, ...]:
    """`instances` in their order, each with a start; starts that were given are kept.

    Of all ways the first by starts, so that the answer is always the same.

    Args:
        gpu: What is cut up.
        instances: A start of None leaves the choice open.
        driver_branch: Major number of the driver, e.g. 580.

    Raises:
        NothingFits: `gpu` has no such profile, or cannot hold all of them at once.
    """
    if not gpu.mig:
        raise NothingFits(f"{gpu.key} has no MIG. Use serial, naive or mps there.")
    wanted = [(_startable(gpu, each), each.start) for each in instances]
    _refuse_crowds([profile for profile, _ in wanted], driver_branch)
    starts = _starts(wanted)
    if starts is None:
        asked = ",".join(map(str, instances))
        raise NothingFits(
            f"{gpu.key} cannot hold mig={asked} at once: some would share one of its "
            f"{gpu.memory_slices} memory slices. Places to start: {_offers(gpu, instances)}."
        )
    return tuple(
        Instance(each.profile, start) for each, start in zip(instances, starts, strict=True)
    )


def profile_of(gpu: Gpu, name: str) -> MigProfile:
    """The MIG profile of `gpu` called `name`.

    Raises:
        NothingFits: It has none of that name; lists those it has.
    """
    for profile in gpu.mig:
        if profile.name == name:
            return profile
    offers = ", ".join(profile.name for profile in gpu.mig) or "none: it has no MIG"
    raise NothingFits(f"{gpu.key} has no MIG profile {name}. Its profiles: {offers}.")


def _startable(gpu: Gpu, instance: Instance) -> MigProfile:
    profile = profile_of(gpu, instance.profile)
    if instance.start not in (None, *profile.starts):
        starts = ", ".join(map(str, profile.starts))
        raise NothingFits(f"on {gpu.key}, {profile.name} starts at {starts}, not {instance.start}.")
    return profile


def layouts(
    gpu: Gpu, driver_branch: int = _R510, *, media: bool = False
) -> tuple[tuple[Instance, ...], ...]:
    """Every valid set of placed instances to which nothing can be added, by start within a set.

    Args:
        gpu: A GPU of the catalogue; without MIG it has no layouts.
        driver_branch: Major number of the driver, e.g. 580.
        media: Whether to use profiles that differ in media engines only (``+me``, ``+gfx``,
            ``-me``); training needs none of them.
    """
    profiles = tuple(profile for profile in gpu.mig if media or not _for_media(profile))
    return _layouts(profiles, gpu.memory_slices, driver_branch) if profiles else ()


@cache
def _layouts(
    profiles: tuple[MigProfile, ...], slices: int, driver_branch: int
) -> tuple[tuple[Instance, ...], ...]:
    every = [(profile, start) for profile in profiles for start in profile.starts]
    maximal = (
        placed
        for placed in _packings(every, slices, driver_branch)
        if not any(_allowed([*placed, more], driver_branch) for more in every)
    )
    return tuple(tuple(Instance(p.name, start) for p, start in placed) for placed in maximal)


def _packings(
    every: list[_Placed], slices: int, driver_branch: int, at: int = 0
) -> Iterator[list[_Placed]]:
    """Every valid set of `every` in the memory slices from `at` on, the empty one included."""
    if at == slices:
        yield []
        return
    for rest in _packings(every, slices, driver_branch, at + 1):
        yield rest
    for profile, start in every:
        if start == at:
            for rest in _packings(every, slices, driver_branch, at + profile.memory_slices):
                if _crowd([profile, *(p for p, _ in rest)], driver_branch) is None:
                    yield [(profile, start), *rest]


def _allowed(placed: list[_Placed], driver_branch: int) -> bool:
    taken = Counter(number for profile, start in placed for number in _slices_of(profile, start))
    alone = max(taken.values(), default=0) <= 1
    return alone and _crowd([profile for profile, _ in placed], driver_branch) is None


def _slices_of(profile: MigProfile, start: int) -> range:
    return range(start, start + profile.memory_slices)


def _for_media(profile: MigProfile) -> bool:
    return not profile.name.endswith("gb")


def _crowd(profiles: Sequence[MigProfile], driver_branch: int) -> str | None:
    """Why no GPU holds `profiles` at once, wherever they lie; None where nothing forbids it."""
    counts = Counter(profile.name for profile in profiles)
    for profile in profiles:
        if counts[profile.name] > profile.max_instances:
            return f"at most {profile.max_instances} of {profile.name}"
    if sum("+me" in profile.name for profile in profiles) > 1:
        return "at most one instance with +me"
    sizes = {(profile.compute_slices, profile.memory_slices) for profile in profiles}
    if driver_branch < _R510 and {(4, 4), (3, 4)} <= sizes:
        return f"a driver of R510 or later for a 4g beside a 3g, not R{driver_branch}"
    return None


def _refuse_crowds(profiles: Sequence[MigProfile], driver_branch: int) -> None:
    if reason := _crowd(profiles, driver_branch):
        names = ",".join(profile.name for profile in profiles)
        raise NothingFits(f"mig={names} is impossible: one GPU allows {reason}.")


def _starts(wanted: Sequence[tuple[MigProfile, int | None]]) -> list[int] | None:
    """A start for each, no slice shared; None where there is none."""
    found = _search(sorted(enumerate(wanted), key=_hardest_first), frozenset())
    return None if found is None else [found[index] for index in range(len(wanted))]


_Wanted = tuple[int, tuple[MigProfile, int | None]]


def _hardest_first(entry: _Wanted) -> tuple[int, int, int]:
    index, (profile, start) = entry
    return (1 if start is None else 0, len(profile.starts), index)


def _search(wanted: list[_Wanted], taken: frozenset[int]) -> dict[int, int] | None:
    if not wanted:
        return {}
    (index, (profile, asked)), *others = wanted
    for start in profile.starts:
        slices = frozenset(_slices_of(profile, start))
        if asked in (None, start) and not slices & taken:
            rest = _search(others, taken | slices)
            if rest is not None:
                return rest | {index: start}
    return None


def _offers(gpu: Gpu, instances: Sequence[Instance]) -> str:
    names = {each.profile for each in instances}
    return "; ".join(
        f"{profile.name} at {', '.join(map(str, profile.starts))}"
        for profile in gpu.mig
        if profile.name in names
    )
