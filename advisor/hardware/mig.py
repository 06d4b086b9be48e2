"""Finds the sets of MIG instances that one GPU can hold at once, with their placements.

A set is valid if each instance starts at one of its profile's places, no two share a memory slice,
and `forbidden` finds no reason. The sum of compute slices adds no restriction on any known GPU.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from advisor.errors import InvalidInput, NothingFits, UnknownName
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.sharing import Instance, full_profile

_FIRST_WITH_MIG = 450  # MIG User Guide, driver versions
_FIRST_WITH_4G_AND_3G = 510  # MIG User Guide, Concepts, Partitioning


def driver_branch(text: str) -> int:
    """Return the branch of a driver's version: 580 of ``"580"``, ``"R580"``, ``"580.159.04"``.

    Raises:
        InvalidInput: `text` is not a version of a driver with MIG.
    """
    major = text.removeprefix("R").partition(".")[0]
    if not (major.isascii() and major.isdigit() and int(major) >= _FIRST_WITH_MIG):
        raise InvalidInput(
            f"{text!r} is not a driver with MIG. Give its branch, {_FIRST_WITH_MIG} or later, "
            f"e.g. 580; `nvidia-smi` shows it."
        )
    return int(major)


def refuse_without_mig(gpu: Gpu) -> None:
    """Raise NothingFits if `gpu` has no MIG."""
    if not gpu.mig:
        raise NothingFits(f"{gpu.key} has no MIG. Use serial, naive or mps there.")


def forbidden(profiles: Sequence[MigProfile], branch: int | None) -> str | None:
    """Return why `profiles` cannot be on one GPU; None if only their places can forbid it.

    A driver's branch is its major number, e.g. 580; here and below, None is new enough for all.
    """
    names = [profile.name for profile in profiles]
    for profile in profiles:
        if names.count(profile.name) > profile.max_instances:
            return f"one GPU has at most {profile.max_instances} of {profile.name}"
    if sum("+me" in name for name in names) > 1:
        return "one GPU has at most one instance with +me"
    if branch is None:
        return None
    for profile in profiles:
        if branch < (profile.min_driver or 0):
            return f"{profile.name} needs a driver of R{profile.min_driver} or later, not R{branch}"
    sizes = {(profile.compute_slices, profile.memory_slices) for profile in profiles}
    if branch < _FIRST_WITH_4G_AND_3G and {(4, 4), (3, 4)} <= sizes:
        return f"a 4g together with a 3g needs a driver of R510 or later, not R{branch}"
    return None


def profiles_named(
    gpu: Gpu, names: Sequence[str], driver_branch: int | None = None
) -> tuple[MigProfile, ...]:
    """Return the MIG profiles of `gpu` called `names`, with or without their memory, each once.

    Raises:
        NothingFits: `gpu` has no MIG, or the driver is too old for one of them.
        UnknownName: `gpu` has no such profile.
    """
    refuse_without_mig(gpu)
    profiles = {profile.name: profile for profile in gpu.mig}
    names = [full_profile(name.strip().lower(), [*profiles]) for name in names]
    for name in names:
        if name not in profiles:
            remedy = f"{gpu.key} has {', '.join(profiles)}."
            raise UnknownName("MIG profile", name, profiles, remedy)
        if reason := forbidden([profiles[name]], driver_branch):
            raise NothingFits(f"{gpu.key}: {reason}.")
    return tuple(profiles[name] for name in dict.fromkeys(names))


def profiles_offered(gpu: Gpu, driver_branch: int | None = None) -> tuple[MigProfile, ...]:
    """Return every MIG profile of `gpu` that the driver offers.

    Raises:
        NothingFits: There is none.
    """
    refuse_without_mig(gpu)
    if offered := tuple(each for each in gpu.mig if not forbidden([each], driver_branch)):
        return offered
    raise NothingFits(f"{gpu.key}: {forbidden(gpu.mig[:1], driver_branch)}.")


def instance_named(gpu: Gpu, text: str) -> Instance:
    """Return the instance that `text` names: a profile of `gpu`, with an optional ``@start``.

    Raises:
        InvalidInput: The start is not a number, or `gpu` has no such profile.
    """
    name, at, start = text.partition("@")
    (profile,) = profiles_named(gpu, [name])
    if at and not (start.isascii() and start.isdigit()):
        raise InvalidInput(
            f"{text!r}: after @ comes the first memory slice, e.g. {name}@{profile.starts[-1]}"
        )
    return Instance(profile.name, int(start) if at else None)


def packed(pieces: Sequence[tuple[Sequence[int], int]]) -> tuple[int, ...] | None:
    """Return a start for each of `pieces`, no slice shared; None if they do not fit.

    A piece is the slices at which it may start, and how many it covers. Pieces with the fewest
    possible starts are placed first, each at its first free start.
    """
    hardest_first = sorted(range(len(pieces)), key=lambda index: len(pieces[index][0]))
    places = _search([pieces[index] for index in hardest_first])
    if places is None:
        return None
    return tuple(start for _, start in sorted(zip(hardest_first, places, strict=True)))


def _covered(start: int, size: int) -> int:
    """The slices from `start` on, a bit each."""
    return ((1 << size) - 1) << start


def _search(
    pieces: Sequence[tuple[Sequence[int], int]], taken: int = 0, skipped: int = 0
) -> list[int] | None:
    """Search like `packed`, around taken slices, those starts of the first that were not skipped.

    Of two equal pieces the second lies after the first: the other way round is the same.
    """
    if not pieces:
        return []
    (starts, size), *others = pieces
    for tried, start in enumerate(starts[skipped:], start=skipped + 1):
        slices = _covered(start, size)
        if not slices & taken:
            equal = others and others[0] == pieces[0]
            rest = _search(others, taken | slices, tried if equal else 0)
            if rest is not None:
                return [start, *rest]
    return None


@lru_cache(4096)  # a search asks hundreds of times
def place(
    gpu: Gpu, instances: tuple[Instance, ...], driver_branch: int | None = None
) -> tuple[Instance, ...]:
    """Return `instances` in their order, each with a start; given starts are kept.

    Of all placements the first by starts, so that the answer is deterministic.

    Raises:
        UnknownName: `gpu` has no such profile.
        InvalidInput: None of that profile starts there.
        NothingFits: `gpu` has no MIG, or cannot hold all of them at once.
    """
    refuse_without_mig(gpu)
    wanted = [(profile_of(gpu, each.profile), each.start) for each in instances]
    for profile, start in wanted:
        if start not in (None, *profile.starts):
            starts = ", ".join(map(str, profile.starts))
            raise InvalidInput(f"on {gpu.key}, {profile.name} starts at {starts}, not {start}.")
    words = ",".join(map(str, instances))
    if reason := forbidden([profile for profile, _ in wanted], driver_branch):
        raise NothingFits(f"mig={words} is impossible: {reason}.")
    places = packed(
        [
            (profile.starts if start is None else (start,), profile.memory_slices)
            for profile, start in wanted
        ]
    )
    if places is None:
        names = {each.profile for each in instances}
        offers = "; ".join(
            f"{each.name} at {', '.join(map(str, each.starts))}"
            for each in gpu.mig
            if each.name in names
        )
        raise NothingFits(
            f"{gpu.key} cannot hold mig={words} at once: some would share one of its "
            f"{gpu.memory_slices} memory slices. Places to start: {offers}."
        )
    return tuple(
        Instance(each.profile, start) for each, start in zip(instances, places, strict=True)
    )


@cache  # a search asks thousands of times
def profile_of(gpu: Gpu, name: str) -> MigProfile:
    """Return the MIG profile of `gpu` called `name`; errors as of `profiles_named`."""
    (profile,) = profiles_named(gpu, [name])
    return profile


@dataclass(frozen=True, slots=True)
class PlacementSets:
    """The sets of placed instances that a GPU can hold.

    Attributes:
        valid: Number of sets, without the empty one.
        maximal: The sets to which nothing can be added, by start within a set; of two sets the one
            with less in its first slices comes first.
    """

    valid: int
    maximal: tuple[tuple[Instance, ...], ...]


def layouts(gpu: Gpu) -> tuple[tuple[Instance, ...], ...]:
    """Return every valid set of placed instances that is full; none without MIG.

    Leaves out profiles that differ in media engines only (``+me``, ``+gfx``, ``-me``): training
    needs none of them.
    """
    return placement_sets(gpu, tuple(row for row in gpu.mig if row.name.endswith("gb"))).maximal


def largest_layouts(gpu: Gpu, most: int) -> tuple[tuple[Instance, ...], ...]:
    """Return the `layouts` of at most `most` instances that no other layout dominates.

    The largest instance of each comes first. Layouts of few instances come first, and of equally
    many the one whose smallest is largest.
    """

    def size(instance: Instance) -> tuple[int, int]:
        profile = profile_of(gpu, instance.profile)
        return profile.memory_slices, profile.compute_slices

    by_sizes: dict[tuple[tuple[int, int], ...], tuple[Instance, ...]] = {}
    for layout in layouts(gpu):
        if len(layout) <= most:
            own = tuple(sorted(layout, key=size, reverse=True))
            by_sizes.setdefault(tuple(map(size, own)), own)

    def smaller(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> bool:
        return len(one) <= len(other) and all(
            memory <= more_memory and compute <= more_compute
            for (memory, compute), (more_memory, more_compute) in zip(one, other, strict=False)
        )

    kept = [
        one
        for one in by_sizes
        if not any(one != other and smaller(one, other) for other in by_sizes)
    ]
    kept.sort(key=lambda one: (len(one), [(-memory, -compute) for memory, compute in one[::-1]]))
    return tuple(by_sizes[each] for each in kept)


class _PlacedProfile(NamedTuple):
    profile: MigProfile
    start: int
    slices: int  # a bit for each memory slice that it covers


def _placed_profile(profile: MigProfile, start: int) -> _PlacedProfile:
    return _PlacedProfile(profile, start, _covered(start, profile.memory_slices))


@cache
def placement_sets(
    gpu: Gpu,
    profiles: tuple[MigProfile, ...],
    in_use: tuple[Instance, ...] = (),
    driver_branch: int | None = None,
) -> PlacementSets:
    """Return every set of instances of `profiles` that `gpu` can hold with those in use.

    An instance in use without a start may be at any place.

    Raises:
        NothingFits: `gpu` cannot hold what is in use.
    """
    if in_use:
        place(gpu, in_use, driver_branch)
    named = [(profile_of(gpu, each.profile), each.start) for each in in_use]
    fixed = tuple(_placed_profile(profile, start) for profile, start in named if start is not None)
    movable = Counter(profile for profile, start in named if start is None)
    kinds = dict.fromkeys((*profiles, *movable))
    pieces = [_placed_profile(profile, start) for profile in kinds for start in profile.starts]
    addable = [piece for piece in pieces if piece.profile in profiles]
    valid, full = 0, []
    for held in _grown(fixed, _apart(fixed, pieces), driver_branch):
        counts = Counter(piece.profile for piece in held[len(fixed) :])
        # Of all that is movable as many as are wanted; more only of what may be added.
        if held and all(
            counts[profile] >= count if profile in profiles else counts[profile] == count
            for profile, count in movable.items()
        ):
            valid += 1
            more = _apart(held, addable)
            if not any(_allowed(held, piece, driver_branch) for piece in more):
                full.append(sorted(held, key=lambda piece: piece.start))
    full.sort(
        key=lambda held: [
            (-start, profile.memory_slices, profile.compute_slices, profile.name)
            for profile, start, _ in held
        ]
    )
    maximal = (tuple(Instance(each.profile.name, each.start) for each in held) for held in full)
    return PlacementSets(valid, tuple(maximal))


def _grown(
    held: tuple[_PlacedProfile, ...], more: list[_PlacedProfile], branch: int | None
) -> Iterator[tuple[_PlacedProfile, ...]]:
    """`held`, and every valid set of it with some of `more`, none of which overlaps it."""
    yield held
    for number, piece in enumerate(more, start=1):
        if _allowed(held, piece, branch):
            yield from _grown((*held, piece), _apart([piece], more[number:]), branch)


def _allowed(held: Sequence[_PlacedProfile], piece: _PlacedProfile, branch: int | None) -> bool:
    return forbidden([each.profile for each in (*held, piece)], branch) is None


def _apart(held: Sequence[_PlacedProfile], pieces: list[_PlacedProfile]) -> list[_PlacedProfile]:
    """The `pieces` that share no memory slice with `held`."""
    taken = sum(each.slices for each in held)
    return [each for each in pieces if not each.slices & taken]
