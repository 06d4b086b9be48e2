"""Finds the sets of MIG instances that one GPU can hold at once, with their placements.

A set is valid if each instance starts at one of its profile's places, no two share a memory slice,
and `advisor.hardware.mig_rules` does not forbid it. On all known GPUs the sum of compute slices
adds no further restriction.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.mig_rules import forbidden, profiles_named, refuse_without_mig
from advisor.hardware.slice_packing import covered, packed
from advisor.sharing import Instance


def place(
    gpu: Gpu, instances: Sequence[Instance], driver_branch: int | None = None
) -> tuple[Instance, ...]:
    """`instances` in their order, each with a start; given starts are kept.

    Of all placements the first by starts, so that the answer is deterministic.

    Args:
        gpu: The whole GPU.
        instances: A start of None leaves the choice open.
        driver_branch: Major number of the driver, e.g. 580; None: new enough for all profiles.

    Raises:
        UnknownName: `gpu` has no such profile.
        InvalidInput: None of that profile starts there.
        NothingFits: `gpu` has no MIG, or cannot hold all of them at once.
    """
    return _placed(gpu, tuple(instances), driver_branch)


@lru_cache(4096)  # a search asks hundreds of times
def _placed(
    gpu: Gpu, instances: tuple[Instance, ...], driver_branch: int | None
) -> tuple[Instance, ...]:
    refuse_without_mig(gpu)
    wanted = [(_startable(gpu, each), each.start) for each in instances]
    asked = ",".join(map(str, instances))
    if reason := forbidden([profile for profile, _ in wanted], driver_branch):
        raise NothingFits(f"mig={asked} is impossible: {reason}.")
    starts = packed(
        [
            (profile.starts if start is None else (start,), profile.memory_slices)
            for profile, start in wanted
        ]
    )
    if starts is None:
        raise NothingFits(
            f"{gpu.key} cannot hold mig={asked} at once: some would share one of its "
            f"{gpu.memory_slices} memory slices. Places to start: {_offers(gpu, instances)}."
        )
    return tuple(
        Instance(each.profile, start) for each, start in zip(instances, starts, strict=True)
    )


@cache  # a search asks thousands of times
def profile_of(gpu: Gpu, name: str) -> MigProfile:
    """The MIG profile of `gpu` called `name`.

    Raises:
        UnknownName: It has none of that name; the message lists those it has.
        NothingFits: It has no MIG.
    """
    (found,) = profiles_named(gpu, [name])
    return found


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


def placement_sets(
    gpu: Gpu,
    profiles: Sequence[MigProfile],
    in_use: Sequence[Instance] = (),
    driver_branch: int | None = None,
) -> PlacementSets:
    """Every set of instances of `profiles` that `gpu` can hold together with those in use.

    Args:
        gpu: The whole GPU.
        profiles: Profiles that may be added.
        in_use: Instances in every set; one without a start may be at any place.
        driver_branch: Major number of the driver, e.g. 580; None: new enough for all profiles.

    Raises:
        NothingFits: `gpu` cannot hold what is in use.
    """
    if in_use:
        place(gpu, in_use, driver_branch)
    named = [(profile_of(gpu, each.profile), each.start) for each in in_use]
    fixed = tuple(_placed_profile(profile, start) for profile, start in named if start is not None)
    movable = tuple(profile for profile, start in named if start is None)
    return _placement_sets(tuple(profiles), fixed, movable, driver_branch)


def layouts(gpu: Gpu) -> tuple[tuple[Instance, ...], ...]:
    """Every valid set of placed instances to which nothing can be added; none without MIG.

    Leaves out profiles that differ in media engines only (``+me``, ``+gfx``, ``-me``): training
    needs none of them.
    """
    profiles = [profile for profile in gpu.mig if profile.name.endswith("gb")]
    return placement_sets(gpu, profiles).maximal


class _PlacedProfile(NamedTuple):
    profile: MigProfile
    start: int
    slices: int  # a bit for each memory slice that it covers


def _placed_profile(profile: MigProfile, start: int) -> _PlacedProfile:
    return _PlacedProfile(profile, start, covered(start, profile.memory_slices))


@cache
def _placement_sets(
    profiles: tuple[MigProfile, ...],
    fixed: tuple[_PlacedProfile, ...],
    movable: tuple[MigProfile, ...],
    branch: int | None,
) -> PlacementSets:
    kinds = dict.fromkeys((*profiles, *movable))
    pieces = [_placed_profile(profile, start) for profile in kinds for start in profile.starts]
    addable = [piece for piece in pieces if piece.profile in profiles]
    found = [
        held
        for held in _grown(fixed, _beside(fixed, pieces), branch)
        if held and _holds(held[len(fixed) :], Counter(movable), profiles)
    ]
    full = sorted(
        (
            sorted(held, key=lambda piece: piece.start)
            for held in found
            if not any(_allowed(held, piece, branch) for piece in _beside(held, addable))
        ),
        key=_by_slice,
    )
    maximal = (tuple(Instance(each.profile.name, each.start) for each in held) for held in full)
    return PlacementSets(len(found), tuple(maximal))


def _grown(
    held: tuple[_PlacedProfile, ...], more: Sequence[_PlacedProfile], branch: int | None
) -> Iterator[tuple[_PlacedProfile, ...]]:
    """`held`, and every valid set of it with some of `more`, none of which overlaps it."""
    yield held
    for number, piece in enumerate(more, start=1):
        if _allowed(held, piece, branch):
            yield from _grown((*held, piece), _beside([piece], more[number:]), branch)


def _allowed(held: Sequence[_PlacedProfile], piece: _PlacedProfile, branch: int | None) -> bool:
    return forbidden([each.profile for each in (*held, piece)], branch) is None


def _beside(
    held: Sequence[_PlacedProfile], pieces: Sequence[_PlacedProfile]
) -> list[_PlacedProfile]:
    """The `pieces` that share no memory slice with `held`."""
    taken = sum(each.slices for each in held)
    return [each for each in pieces if not each.slices & taken]


def _holds(
    added: Sequence[_PlacedProfile], movable: Counter[MigProfile], profiles: Sequence[MigProfile]
) -> bool:
    """Whether the added instances include all of `movable`, each as often as listed."""
    counts = Counter(piece.profile for piece in added)
    return all(
        counts[profile] >= wanted if profile in profiles else counts[profile] == wanted
        for profile, wanted in movable.items()
    )


def _by_slice(held: Sequence[_PlacedProfile]) -> list[tuple[int, int, int, str]]:
    return [
        (-start, profile.memory_slices, profile.compute_slices, profile.name)
        for profile, start, _ in held
    ]


def _startable(gpu: Gpu, instance: Instance) -> MigProfile:
    profile = profile_of(gpu, instance.profile)
    if instance.start not in (None, *profile.starts):
        starts = ", ".join(map(str, profile.starts))
        raise InvalidInput(
            f"on {gpu.key}, {profile.name} starts at {starts}, not {instance.start}."
        )
    return profile


def _offers(gpu: Gpu, instances: Sequence[Instance]) -> str:
    names = {each.profile for each in instances}
    return "; ".join(
        f"{profile.name} at {', '.join(map(str, profile.starts))}"
        for profile in gpu.mig
        if profile.name in names
    )
