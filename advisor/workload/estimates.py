"""Estimated profiles, measured on another GPU or at other batch sizes: found, refused, written."""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.workload.named_workloads import how_to_measure
from advisor.workload.profile import Profile
from advisor.workload.store import read_profile, sound_profiles
from advisor.workload.writing import profile_text, writable_folder, write_whole


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


def write_estimates(folder: Path, estimates: Sequence[Profile]) -> tuple[Path, ...]:
    """Write each of `estimates` into `folder` under its name; an older estimate is replaced.

    Raises:
        InvalidInput: A file there is no estimate; then nothing is written.
        AdvisorError: The folder cannot be written.
    """
    paths = tuple(writable_folder(folder) / f"{each.name}.json" for each in estimates)
    for path in paths:
        if path.exists() and not read_profile(path).is_estimate:
            raise InvalidInput(
                f"{path}: it was measured, and an estimate does not take its place. Choose another "
                f"--out."
            )
    for path, each in zip(paths, estimates, strict=True):
        write_whole(path, profile_text(each))
    return paths
