"""Gives each tenant host cores of its own.

With two tenants on one core, or one tenant moved between cores, the scheduler would be measured.
"""

import os
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from advisor.errors import InvalidInput, counted, is_or_are

_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def allowed_cores(text: str | None = None) -> tuple[int, ...]:
    """The cores that tenants may have: those in `text`, e.g. ``"0-5,8"``, else all of this process.

    Raises:
        InvalidInput: `text` is not a list of cores, or names one that this process may not use.
    """
    ours = sorted(os.sched_getaffinity(0))
    if text is None:
        return tuple(ours)
    wanted = named_cores(text)
    if foreign := sorted(set(wanted) - set(ours)):
        raise InvalidInput(
            f"--cores {text}: core {foreign[0]} is not ours to use. Choose among {_short(ours)}."
        )
    return wanted


def named_cores(text: str) -> tuple[int, ...]:
    """The cores in `text`, e.g. ``"0-5,8"``, whether this machine has them or not.

    Raises:
        InvalidInput: `text` is not a list of cores.
    """
    matches = [_RANGE.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        raise InvalidInput(f"--cores {text!r}: write cores as 0-15 or 0,2,4-7")
    bounds = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    wanted = sorted({core for first, last in bounds for core in range(first, last + 1)})
    if not wanted:
        raise InvalidInput(f"--cores {text}: there is no core in it. Write the lower core first.")
    return tuple(wanted)


def cores_of_each(
    wanted: Sequence[int], allowed: Sequence[int], *, share: bool = False
) -> tuple[tuple[int, ...], ...]:
    """Cores for each tenant, in their order, no core twice.

    Args:
        wanted: Cores that each tenant needs, shape (tenants,).
        allowed: Cores that there are.
        share: If there are too few, give a core to several tenants instead of refusing: for trials
            without a GPU, whose figures are not kept.

    Raises:
        InvalidInput: There are too few cores.
    """
    needed = sum(wanted)
    if needed > len(allowed) and not share:
        raise InvalidInput(
            f"{counted(needed, 'core')} would be needed for {counted(len(wanted), 'tenant')}, one "
            f"each and one for each loader worker, and allowed {is_or_are(len(allowed))} "
            f"{len(allowed)} ({_short(allowed)}). Allow more with --cores, or take fewer tenants "
            f"or loader workers."
        )
    bounds = pairwise(accumulate(wanted, initial=0))
    return tuple(
        tuple(sorted({allowed[index % len(allowed)] for index in range(first, last)}))
        for first, last in bounds
    )


def spare_cores(taken: Sequence[tuple[int, ...]], allowed: Sequence[int]) -> tuple[int, ...]:
    """The allowed cores that no tenant has; all of them if none is spare."""
    rest = set(allowed).difference(*taken)
    return tuple(sorted(rest)) or tuple(allowed)


def leave_to_tenants(taken: Sequence[tuple[int, ...]], allowed: Sequence[int]) -> None:
    """Move this process to cores that no tenant has, if any is spare, so that it disturbs none."""
    os.sched_setaffinity(0, spare_cores(taken, allowed))


def _short(cores: Sequence[int]) -> str:
    """E.g. ``"0-5,8"``."""
    starts = [core for core in cores if core - 1 not in cores]
    ends = [core for core in cores if core + 1 not in cores]
    return ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(starts, ends, strict=True)
    )


_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def siblings_of(core: int) -> str:
    """The hardware threads of `core`'s physical core, as one text; `core` itself if unknown."""
    try:
        return Path(_TOPOLOGY.format(core)).read_text().strip()
    except OSError:
        return str(core)


def split_cores(
    allowed: Sequence[int], parts: int, siblings: Callable[[int], str] = siblings_of
) -> tuple[tuple[int, ...], ...]:
    """Equally many cores for each of `parts` devices, no physical core in two parts.

    Args:
        allowed: The host's cores, ascending.
        parts: Number of devices.
        siblings: Gives the same text for all threads of one physical core.

    Raises:
        InvalidInput: There are fewer physical cores than devices.
    """
    physical: dict[str, list[int]] = {}
    for core in allowed:
        physical.setdefault(siblings(core), []).append(core)
    cores = list(physical.values())
    size = len(cores) // parts
    if size == 0:
        raise InvalidInput(
            f"{counted(parts, 'device')} cannot have cores of their own: {len(cores)} physical "
            f"cores are allowed. Allow more with --cores, or take fewer --devices."
        )
    return tuple(
        tuple(
            sorted(core for threads in cores[part * size : (part + 1) * size] for core in threads)
        )
        for part in range(parts)
    )
