"""Resolves the names of MIG profiles and instances that a user gives."""

from collections.abc import Sequence

from advisor.errors import InvalidInput, NothingFits, UnknownName
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.mig_rules import forbidden, refuse_without_mig
from advisor.sharing import Instance


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
