"""Splits a host's cores among the devices on which a campaign measures at once."""

from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.english import counted
from advisor.errors import InvalidInput

_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def siblings_of(core: int) -> str:
    """What the threads of one physical core have in common; the core itself where not told."""
    try:
        return Path(_TOPOLOGY.format(core)).read_text().strip()
    except OSError:
        return str(core)


def split_cores(
    allowed: Sequence[int], parts: int, siblings: Callable[[int], str] = siblings_of
) -> tuple[tuple[int, ...], ...]:
    """As many cores for each of `parts` devices, no physical core in two parts.

    Args:
        allowed: The host's cores, ascending.
        parts: How many devices.
        siblings: What the threads of one physical core have in common.

    Raises:
        InvalidInput: There are fewer physical cores than devices.
    """
    physical: dict[str, list[int]] = {}
    for core in allowed:
        physical.setdefault(siblings(core), []).append(core)
    cores = list(physical.values())
    each = len(cores) // parts
    if each == 0:
        raise InvalidInput(
            f"{counted(parts, 'device')} cannot have cores of their own: {len(cores)} physical "
            f"cores are allowed. Allow more with --cores, or take fewer --devices."
        )
    return tuple(
        tuple(
            sorted(core for threads in cores[part * each : (part + 1) * each] for core in threads)
        )
        for part in range(parts)
    )
