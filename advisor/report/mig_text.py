"""Shows how a GPU is divided with MIG: tables, and drawings in plain characters."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.hardware.catalogue import DESCRIBED, Gpu, MigProfile
from advisor.hardware.gpu_partition import compute_sets
from advisor.hardware.mig_layouts import PlacementSets, profile_of
from advisor.report.documents import SCHEMA
from advisor.report.table_layout import plain_table
from advisor.sharing import Instance

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# Width of a drawing; with number, SMs and ways to divide, a line fits 80 columns.
_CHARACTERS = 56
_MEDIA = "+me"
_OTHERS = (
    "Ways: places that the same instances may have, one of which may have the media engines. "
    "All of them: --all."
)
_UNTRIED = "All this is computed; none of it was tried on a GPU with MIG on."


def layouts_document(
    gpu: Gpu, profiles: Sequence[MigProfile], sets: PlacementSets
) -> dict[str, Any]:
    """What ``advisor layouts --json`` prints; starts and sizes in memory slices."""
    return {
        "schema": SCHEMA,
        "gpu": gpu.key,
        "profiles": [profile.name for profile in profiles],
        "valid_placement_sets": sets.valid,
        "maximal": [
            [
                {"profile": name, "start": start, "size": profile_of(gpu, name).memory_slices}
                for name, start in ((each.profile, each.start) for each in layout)
            ]
            for layout in reversed(sets.maximal)
        ],
    }


def layouts_report(
    gpu: Gpu,
    profiles: Sequence[MigProfile],
    sets: PlacementSets,
    in_use: Sequence[Instance],
    *,
    every: bool = False,
) -> "RenderableType":
    """MIG profiles, their compute instances, and full layouts to scale: of similar ones the first.

    Layouts are similar that have the same instances, wherever these lie and whichever has media
    engines. With `every`, all are drawn.
    """
    from rich.console import Group
    from rich.text import Text

    heading = Text(_heading(gpu, sets, in_use))
    parts: list[RenderableType] = [heading, "", _profiles_table(profiles), ""]
    cut_up = [profile for profile in profiles if len(compute_sets(gpu, profile.name)) > 1]
    if cut_up:
        parts += [_compute_table(gpu, cut_up), ""]
    full = {number: each for number, each in enumerate(reversed(sets.maximal), start=1)}
    alike = {number: [number] for number in full} if every else _alike(full)
    parts += [_layouts_table(gpu, full, alike, in_use), ""]
    if len(alike) < len(full):
        parts += [Text(_OTHERS), ""]
    parts += [Text(_notes(gpu))]
    return Group(*parts)


def _heading(gpu: Gpu, sets: PlacementSets, in_use: Sequence[Instance]) -> str:
    beside = f" with {', '.join(map(str, in_use))} in use (*)" if in_use else ""
    return (
        f"{gpu.key}{beside}: {counted(sets.valid, 'valid placement set')}; nothing can be added to "
        f"{len(sets.maximal):,} of them"
    )


def drawn(gpu: Gpu, layout: Sequence[Instance], used: Sequence[Instance] = ()) -> str:
    """`layout` to scale, from the first memory slice on; a star marks instances in use."""
    width = _CHARACTERS // gpu.memory_slices
    row = [" "] * (width * gpu.memory_slices + 1)
    for each in layout:
        first, size = each.start or 0, profile_of(gpu, each.profile).memory_slices
        left, right = width * first, width * (first + size)
        label = ("*" if each in used else "") + re.sub(r"\.\d+gb", "", each.profile)
        row[left] = row[right] = "|"
        row[left + 1 : right] = label[: right - left - 1].ljust(right - left - 1)
    return "".join(row)


def _profiles_table(profiles: Sequence[MigProfile]) -> "Table":
    table = plain_table("profile", "id", "memory", "SMs", "most", "starts at memory slice")
    for each in profiles:
        table.add_row(
            each.name,
            f"{each.profile_id}",
            f"{each.memory_mib:,} MiB",
            _count(each.sms),
            f"{each.max_instances}",
            ", ".join(map(str, each.starts)),
        )
    return table


def _compute_table(gpu: Gpu, profiles: Sequence[MigProfile]) -> "Table":
    table = plain_table("one of", "holds compute instances that share its memory: all of it, or")
    for each in profiles:
        ways = [way for way in compute_sets(gpu, each.name) if len(way) > 1]
        table.add_row(each.name, ", ".join(map(_sizes, ways)))
    return table


def _alike(full: Mapping[int, Sequence[Instance]]) -> dict[int, list[int]]:
    """Numbers of similar layouts, by the first of them."""
    found: dict[tuple[str, ...], list[int]] = {}
    for number, layout in full.items():
        instances = sorted(each.profile.removesuffix(_MEDIA) for each in layout)
        found.setdefault(tuple(instances), []).append(number)
    for numbers in found.values():
        numbers.sort(key=lambda number: any(_MEDIA in each.profile for each in full[number]))
    return {numbers[0]: numbers for numbers in found.values()}


def _layouts_table(
    gpu: Gpu,
    full: Mapping[int, Sequence[Instance]],
    alike: Mapping[int, Sequence[int]],
    in_use: Sequence[Instance],
) -> "Table":
    width = _CHARACTERS // gpu.memory_slices
    ruler = "".join(f" {number}".ljust(width) for number in range(gpu.memory_slices))
    table = plain_table("no.", ruler, "SMs", "ways")
    table.columns[1].no_wrap = True
    for number, numbers in alike.items():
        layout = full[number]
        sms = [profile_of(gpu, each.profile).sms for each in layout]
        total = sum(each for each in sms if each is not None)
        drawing = drawn(gpu, layout, _used(layout, in_use))
        said = _count(None if None in sms else total)
        table.add_row(f"{number}", drawing, said, f"{len(numbers)}")
    return table


def _used(layout: Sequence[Instance], in_use: Sequence[Instance]) -> list[Instance]:
    """The instances of `layout` that are `in_use`; without a start, the first that it can be."""
    used = [each for each in layout if each in in_use]
    missing = Counter(each.profile for each in in_use if each.start is None)
    for each in layout:
        if missing[each.profile] and each not in used:
            missing[each.profile] -= 1
            used.append(each)
    return used


def _notes(gpu: Gpu) -> str:
    inside = gpu.sources.get("compute_instances", "nobody has said which there can be")
    places = gpu.sources.get("mig") or gpu.sources[DESCRIBED]
    return f"Profiles and places: {places}.\nCompute instances: {inside}.\n{_UNTRIED}"


def _sizes(way: Sequence[int]) -> str:
    """``4c+3x1c`` of (4, 1, 1, 1)."""
    counts = Counter(way)
    return "+".join(f"{n}x{size}c" if n > 1 else f"{size}c" for size, n in counts.items())


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value}"
