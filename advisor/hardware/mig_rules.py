"""Rules that forbid a set of MIG instances on one GPU and driver, wherever they are placed."""

from collections import Counter
from collections.abc import Sequence

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.catalogue import Gpu, MigProfile

_FIRST_WITH_MIG = 450  # MIG User Guide, driver versions
_FIRST_WITH_4G_AND_3G = 510  # MIG User Guide, Concepts, Partitioning


def driver_branch(text: str) -> int:
    """The branch of a driver's version: 580 of ``"580"``, ``"R580"`` or ``"580.159.04"``.

    Raises:
        InvalidInput: `text` is not a version, or is that of a driver older than MIG.
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
    """Why no placement of `profiles` on one GPU is allowed; None if only placement can forbid it.

    Args:
        profiles: One for each instance.
        branch: Of the driver, e.g. 580; None: new enough for all.
    """
    counts = Counter(profile.name for profile in profiles)
    for profile in profiles:
        if counts[profile.name] > profile.max_instances:
            return f"one GPU has at most {profile.max_instances} of {profile.name}"
    if sum("+me" in profile.name for profile in profiles) > 1:
        return "one GPU has at most one instance with +me"
    return None if branch is None else _too_new(profiles, branch)


def _too_new(profiles: Sequence[MigProfile], branch: int) -> str | None:
    for profile in profiles:
        if profile.min_driver is not None and branch < profile.min_driver:
            return f"{profile.name} needs a driver of R{profile.min_driver} or later, not R{branch}"
    sizes = {(profile.compute_slices, profile.memory_slices) for profile in profiles}
    if branch < _FIRST_WITH_4G_AND_3G and {(4, 4), (3, 4)} <= sizes:
        return f"a 4g together with a 3g needs a driver of R510 or later, not R{branch}"
    return None
