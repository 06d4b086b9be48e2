"""Names of MIG profiles, and rules that forbid a set of them wherever they are placed."""

from collections.abc import Sequence

from advisor.errors import InvalidInput, NothingFits, UnknownName
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.sharing import Instance

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
    names = [profile.name for profile in profiles]
    for profile in profiles:
        if names.count(profile.name) > profile.max_instances:
            return f"one GPU has at most {profile.max_instances} of {profile.name}"
    if sum("+me" in name for name in names) > 1:
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


def profiles_named(
    gpu: Gpu, names: Sequence[str], driver_branch: int | None = None
) -> tuple[MigProfile, ...]:
    """The MIG profiles of `gpu` called `names`, each once.

    Raises:
        NothingFits: `gpu` has no MIG, or the driver is too old for one of them.
        UnknownName: `gpu` has none of such a name.
    """
    refuse_without_mig(gpu)
    known = {profile.name: profile for profile in gpu.mig}
    for name in names:
        if name not in known:
            remedy = f"It has {', '.join(known)}."
            raise UnknownName(f"MIG profile of {gpu.key}", name, known, remedy)
        if reason := forbidden([known[name]], driver_branch):
            raise NothingFits(f"{gpu.key}: {reason}.")
    return tuple(known[name] for name in dict.fromkeys(names))


def profiles_offered(gpu: Gpu, driver_branch: int | None = None) -> tuple[MigProfile, ...]:
    """Every MIG profile of `gpu` that the driver offers.

    Raises:
        NothingFits: There is none.
    """
    refuse_without_mig(gpu)
    offered = tuple(each for each in gpu.mig if forbidden([each], driver_branch) is None)
    if not offered:
        raise NothingFits(f"{gpu.key}: {forbidden(gpu.mig[:1], driver_branch)}.")
    return offered


def instance_named(gpu: Gpu, text: str) -> Instance:
    """The instance that `text` names: a profile of `gpu`, with an optional ``@start``.

    Raises:
        InvalidInput: The start is not a number, or `gpu` has no such profile.
        NothingFits: `gpu` has no MIG.
    """
    name, at, start = text.partition("@")
    (profile,) = profiles_named(gpu, [name])
    if at and not (start.isascii() and start.isdigit()):
        raise InvalidInput(
            f"{text!r}: after @ comes the first memory slice, e.g. {name}@{profile.starts[-1]}"
        )
    return Instance(name, int(start) if at else None)
