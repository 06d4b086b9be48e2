"""Estimated profiles, measured on another GPU or at other batch sizes: found and refused."""

from collections.abc import Container, Iterable
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.workload.named_workloads import how_to_measure
from advisor.workload.profile import Profile
from advisor.workload.store import sound_profiles


def estimated_profiles(profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """The estimates among `profiles`, each once."""
    each = {profile.name: profile for profile in profiles if profile.is_estimate}
    return tuple(each.values())


def measured_profiles(
    gpu: str, given: Path | None = None, needed: Container[str] = ()
) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """As `advisor.workload.store.sound_profiles`, without estimates, from which nothing is learnt.

    Raises:
        InvalidInput: One that is needed is an estimate, or its file is not a profile of `gpu`.
    """
    found, refused = sound_profiles(gpu, given, needed)
    if asked := [each.name for each in estimated_profiles(found.values()) if each.name in needed]:
        raise InvalidInput(
            f"there are runs of {', '.join(asked)} on {gpu}, and its profile is an estimate. "
            f"Measure it there: {how_to_measure(asked)}."
        )
    return {name: each for name, each in found.items() if not each.is_estimate}, refused
