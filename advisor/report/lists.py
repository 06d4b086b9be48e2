"""GPU models, this machine's GPUs, workloads and profiles, as tables and JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from advisor.errors import clean, counted
from advisor.hardware.gpu_state import BrokenGpu, LiveGpu
from advisor.hardware.gpus import DESCRIBED, Gpu, MigProfile, known_gpus
from advisor.hardware.mig import PlacementSets, place, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.admission import alike_in_memory, held_alone_mib, tenants
from advisor.prediction.find_profile import most_alike
from advisor.report.documents import SCHEMA
from advisor.report.format import NOT_MEASURED, number, plain_table, share
from advisor.sharing import Hybrid, Instance, Place, SharedPartition, Sharing
from advisor.sharing.groups import instance_sets
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload
from advisor.workload.store import profile_paths

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    pass


_UNKNOWN = "unknown"
_COUNTERS = {
    None: "none", "gpm": "GPM", "dcgm": "DCGM, where it counts on this GPU",
    "nvml": "NVML utilisation only",
}  # fmt: skip


def gpus_table(models: Iterable[Gpu], profiled: Sequence[str]) -> "Table":
    """All GPU models; `profiled` holds the keys of those with profiles."""
    table = plain_table("GPU", "SMs", "memory", "bandwidth", "power", "MIG", "profiles")
    for gpu in models:
        table.add_row(
            gpu.key + (", as its driver says" if DESCRIBED in gpu.sources else ""),
            f"{gpu.sms}",
            f"{gpu.memory_mib:,} MiB",
            _known(gpu.bandwidth_gb_s, "GB/s"),
            _known(gpu.power_limit_w, "W"),
            counted(len(gpu.mig), "kind") if gpu.mig else "no",
            "yes" if gpu.key in profiled else "none",
        )
    return table


def live_lines(found: Sequence[LiveGpu | BrokenGpu]) -> list[str]:
    """The GPUs of this machine, a few lines each."""
    lines = []
    for gpu in found:
        if isinstance(gpu, BrokenGpu):
            lines.append(f"GPU {gpu.index} does not answer: {gpu.problem}")
        else:
            lines += _live(gpu)
    return lines or ["The driver lists no GPU."]


def gpus_document(
    models: Iterable[Gpu],
    profiled: Sequence[str],
    found: Sequence[LiveGpu | BrokenGpu],
    problem: str | None,
) -> dict[str, Any]:
    """What ``advisor gpus --json`` prints; `problem`: why this machine could not be asked."""
    return {
        "schema": SCHEMA,
        "catalogue": [asdict(gpu) for gpu in models],
        "profiled": list(profiled),
        "at_hand": [asdict(gpu) for gpu in found],
        "problem": problem,
    }


def workloads_table(workloads: Iterable[Workload]) -> "Table":
    table = plain_table("workload", "examples an epoch")
    for each in workloads:
        table.add_row(each.name, _known(each.examples_per_epoch, ""))
    return table


def profiles_table(profiles: Mapping[str, Profile], *, details: bool = False) -> "Table":
    """Profiles with pace, the share of a step in which their kernels run, and memory.

    Args:
        profiles: By name.
        details: Whether to add the fastest step and the date; estimated profiles always have them.
    """
    details |= any(each.estimated_from is not None for each in profiles.values())
    table = plain_table("profile", "step", "kernel", "memory", *_DETAILS[: 2 * details])
    for name, each in profiles.items():
        memory_mib = each.memory.device_mib
        more = (f"{number(1000 * each.fastest_step_s)} ms", _origin(each)) if details else ()
        table.add_row(
            clean(name),
            f"{number(1000 * each.step_s)} ms",
            share(each.busy_share),
            _UNKNOWN if memory_mib is None else f"{memory_mib:,.0f} MiB",
            *more,
        )
    return table


_DETAILS = ("fastest", "measured")


def _origin(profile: Profile) -> str:
    if profile.estimated_from is not None:
        return f"estimated from {profile.estimated_from}"
    return clean(profile.provenance.date[:10]) if profile.provenance else NOT_MEASURED


def profiles_document(gpu: str, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """What ``advisor profiles --json`` prints; kernel traces are left out."""
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "profiles": [
            {
                "name": name,
                "step_s": each.step_s,
                "fastest_step_s": each.fastest_step_s,
                "unsteady": each.unsteady,
                "epoch_s": each.epoch_s,
                "gpu_busy": each.busy_share,
                "memory": asdict(each.memory),
                "provenance": each.provenance and asdict(each.provenance),
                "estimated_from": each.estimated_from,
            }
            for name, each in profiles.items()
        ],
    }


def workloads_document(workloads: Iterable[Workload]) -> dict[str, Any]:
    """What ``advisor workloads --json`` prints."""
    return {"schema": SCHEMA, "workloads": [asdict(each) for each in workloads]}


def _live(gpu: LiveGpu) -> list[str]:
    processes = [f"{each.pid} ({_known(each.memory_mib, 'MiB')})" for each in gpu.processes]
    facts = [*live_facts(gpu), ("processes", ", ".join(processes) or "none")]
    return [live_name(gpu), *(f"  {name:9}  {said}" for name, said in facts)]


def live_name(gpu: LiveGpu) -> str:
    """The GPU's name and driver."""
    key = gpu.catalogue_key or "not in the catalogue"
    return f"GPU {gpu.index}: {gpu.product}, {key}, driver {gpu.driver}"


def live_facts(gpu: LiveGpu) -> list[tuple[str, str]]:
    """Facts about the GPU as a whole: name and value."""
    mig = {None: "no MIG", True: "MIG on", False: "MIG off"}[gpu.mig_enabled]
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
        mig += f" ({'on' if gpu.mig_pending else 'off'} after the next reset)"
    daemons = [f"{each.role} {each.pid} of {each.owner}" for each in gpu.mps]
    busy = gpu.gpu_utilization
    return [
        ("memory", f"{gpu.memory_used_mib:,.0f} of {gpu.memory_total_mib:,.0f} MiB in use"),
        ("busy", _UNKNOWN if busy is None else f"a kernel runs {busy:.0%} of the time"),
        ("power", f"{_known(gpu.power_w, 'W')} of {_known(gpu.power_limit_w, 'W')}"),
        ("modes", f"{mig}; compute mode {gpu.compute_mode or _UNKNOWN}"),
        ("MPS", ", ".join(daemons) or "no daemon runs"),
        ("counters", _COUNTERS[gpu.counters]),
    ]


def process_rows(gpu: LiveGpu, jobs: Sequence[Job]) -> list[dict[str, str]]:
    """A row for each process on it, with those of `jobs` that hold as much memory."""
    held_mib, clients = held_alone_mib(job.profile for job in jobs), tenants(gpu)
    return [
        {
            "process": str(each.pid),
            "holds": _known(each.memory_mib, "MiB"),
            "as much as": ", ".join(alike_in_memory(each, held_mib)) or "none of the jobs"
            if each in clients
            else "the MPS server",
        }
        for each in gpu.processes
    ]


def _known(value: float | None, unit: str) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f} {unit}".rstrip()


# Width of a drawing; with ordinal, SMs and ways to divide, a line fits 80 columns.
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
    full = {ordinal: each for ordinal, each in enumerate(reversed(sets.maximal), start=1)}
    alike = {ordinal: [ordinal] for ordinal in full} if every else _alike(full)
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
    for ordinal, layout in full.items():
        instances = sorted(each.profile.removesuffix(_MEDIA) for each in layout)
        found.setdefault(tuple(instances), []).append(ordinal)
    for numbers in found.values():
        numbers.sort(key=lambda ordinal: any(_MEDIA in each.profile for each in full[ordinal]))
    return {numbers[0]: numbers for numbers in found.values()}


def _layouts_table(
    gpu: Gpu,
    full: Mapping[int, Sequence[Instance]],
    alike: Mapping[int, Sequence[int]],
    in_use: Sequence[Instance],
) -> "Table":
    width = _CHARACTERS // gpu.memory_slices
    ruler = "".join(f" {ordinal}".ljust(width) for ordinal in range(gpu.memory_slices))
    table = plain_table("no.", ruler, "SMs", "ways")
    table.columns[1].no_wrap = True
    for ordinal, numbers in alike.items():
        layout = full[ordinal]
        sms = [profile_of(gpu, each.profile).sms for each in layout]
        total = sum(each for each in sms if each is not None)
        drawing = drawn(gpu, layout, _used(layout, in_use))
        said = _count(None if None in sms else total)
        table.add_row(f"{ordinal}", drawing, said, f"{len(numbers)}")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """An instance, what lies inside one, or what is left.

    Attributes:
        row: Title of the blocks side by side.
        start: Left end, in memory slices from the first; a part of an instance lies in its share.
        end: Right end, in the same unit.
        label: What it is called, and whose it is.
        kind: What it is.
        jobs: Numbers of those that have all of it.
    """

    row: str
    start: float
    end: float
    label: str
    kind: Literal["instance", "compute instance", "free"]
    jobs: tuple[int, ...] = ()


def blocks(sharing: Sharing, gpu: Gpu) -> tuple[Block, ...]:
    """All blocks of `sharing`, a set of instances after the other; none without MIG.

    Raises:
        NothingFits: An instance has no place on `gpu`.
    """
    sets = instance_sets(sharing)
    names = ["GPU"] if len(sets) == 1 else [f"set {number}" for number in range(1, len(sets) + 1)]
    return tuple(
        block for name, each in zip(names, sets, strict=True) for block in _blocks(name, each, gpu)
    )


def _blocks(name: str, hybrid: Hybrid, gpu: Gpu) -> Iterator[Block]:
    free = set(range(gpu.memory_slices))
    for instance, each in zip(place(gpu, hybrid.instances), hybrid.places, strict=True):
        first, size = instance.start or 0, profile_of(gpu, instance.profile).memory_slices
        free -= set(range(first, first + size))
        whole = [part for part in each.partitions if part.slices is None]
        whose = "".join(f": {_whose(part)}" for part in whole)
        yield Block(
            row=f"{name}: instances", start=first, end=first + size,
            label=f"{instance.profile}{whose}", kind="instance",
            jobs=tuple(job for part in whole for job in part.jobs),
        )  # fmt: skip
        yield from _inside(f"{name}: inside", each, first, size, gpu)
    for slice_ in sorted(free):
        yield Block(
            row=f"{name}: instances", start=slice_, end=slice_ + 1, label="free", kind="free"
        )


def _inside(row: str, divided: Place, first: int, size: int, gpu: Gpu) -> Iterator[Block]:
    """The compute instances of an instance, side by side; they share its memory."""
    whole, left = profile_of(gpu, divided.instance.profile).compute_slices, 0
    for part in divided.partitions:
        if part.slices is None:
            return
        start, left = left, left + part.slices
        yield Block(
            row=row, start=first + size * start / whole, end=first + size * left / whole,
            label=f"{part.slices}c: {_whose(part)}", kind="compute instance",
            jobs=part.jobs,
        )  # fmt: skip


def _whose(part: SharedPartition) -> str:
    if len(part.jobs) == 1:
        return f"job {part.jobs[0]}"
    return f"jobs {', '.join(map(str, part.jobs))} by {part.sharing}"


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """A GPU model that can be asked about.

    Attributes:
        at_hand: Whether it is in this machine.
        measured: Number of jobs with profiles of this GPU.
        nearest: GPUs from which other jobs are estimated, nearest first.
    """

    key: str
    at_hand: bool
    measured: int
    nearest: tuple[str, ...]

    @property
    def label(self) -> str:
        """A word or two, for a narrow list to choose from."""
        stands = "measured" if self.measured else "estimated"
        return f"{self.key}: {'in this machine' if self.at_hand else stands}"

    @property
    def standing(self) -> str:
        """What answers about it are based on, in a sentence or two."""
        here = "This GPU is in this machine. " if self.at_hand else ""
        if not self.measured:
            return f"{here}Nothing was measured on it: all answers are {self._estimated}."
        others = f"; other jobs are {self._estimated}" if self.nearest else ""
        return f"{here}Jobs measured on it alone: {self.measured}{others}."

    @property
    def _estimated(self) -> str:
        return f"estimated from {', '.join(self.nearest)}"


def gpu_choices(at_hand: str | None) -> dict[str, GpuChoice]:
    """All GPU models known by key: the one `at_hand` first, then those with profiles of them."""
    known = known_gpus()
    measured = {key: len(profile_paths(key)) for key in known}
    sources = {key for key in known if measured[key]}
    keys = sorted(known, key=lambda key: (key != at_hand, key not in sources))
    return {
        key: GpuChoice(key, key == at_hand, measured[key], most_alike(sources - {key}, known[key]))
        for key in keys
    }
