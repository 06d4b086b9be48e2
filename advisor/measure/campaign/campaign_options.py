"""The options of ``advisor campaign``, and how its devices share the host's cores."""

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.english import counted
from advisor.errors import InvalidInput

_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The options in the words `argv`.

    Raises:
        SystemExit: They ask for help (0), or cannot be parsed (2).
    """
    parser = argparse.ArgumentParser(
        prog="advisor campaign",
        description="Measures the runs of a plan on all GPUs asked for, out of one queue. What the "
        "folder has already is not done again. Also starts as `python -m advisor.campaign`, which "
        "needs torch, timm and nvidia-ml-py only.",
        epilog="Exit codes: 0 all measured or the deadline is near, 1 some failed, 2 wrong use, "
        "4 no GPU to use.",
    )
    add = parser.add_argument
    add("plan", type=Path, metavar="PLAN.toml", help="what to measure")
    add("--devices", metavar="LIST", help="GPU indices or UUIDs, e.g. 0-7 or 0,2; or cpu,cpu to "
        "try out with two runners [0; with --ray, all that are free]")  # fmt: skip
    add("--cores", help="host cores, split evenly among the devices, e.g. 0-63 [all]")
    add("--out", type=Path, metavar="DIR", help="folder of runs [your own, read by advisor]")
    add("--profiles", type=Path, metavar="DIR", help="folder of profiles, read, and where missing "
        "ones go [your own, read by advisor]")  # fmt: skip
    add("--deadline", type=_seconds, metavar="S", help="begin nothing that would end after these")
    add("--dry-run", action="store_true", help="write the drawn list and count it; measure nothing")
    add("--ray", metavar="ADDRESS", help="measure on the GPUs of this Ray cluster, e.g. auto; "
        "advisor must be installed on its nodes")  # fmt: skip
    return parser.parse_args(argv)


def devices_in(text: str) -> tuple[str, ...]:
    """The devices in `text`, e.g. ``"0-3,5"``, UUIDs, or ``"cpu,cpu"``.

    Raises:
        InvalidInput: `text` is not a list of devices, or names a GPU twice.
    """
    devices = tuple(each for part in text.split(",") for each in _range(part.strip()))
    if "" in devices or not devices:
        raise InvalidInput(f"--devices {text!r}: write devices as 0-7, 0,2 or cpu")
    if "cpu" in devices:
        if set(devices) != {"cpu"}:
            raise InvalidInput(f"--devices {text}: either GPUs or cpu, not both")
    elif len(set(devices)) < len(devices):
        raise InvalidInput(f"--devices {text}: a GPU is listed twice")
    return devices


def _range(part: str) -> tuple[str, ...]:
    if match := _RANGE.fullmatch(part):
        return tuple(map(str, range(int(match[1]), int(match[2]) + 1)))
    return (part,)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


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
