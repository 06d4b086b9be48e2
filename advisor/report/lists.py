"""GPU models, this machine's GPUs, workloads, profiles and MIG layouts, as tables and JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from advisor.errors import clean, counted
from advisor.hardware.gpus import DESCRIBED, OF_MIG, Gpu, MigProfile
from advisor.hardware.machine import BrokenGpu, LiveGpu
from advisor.hardware.mig import PlacementSets, profile_of
from advisor.hardware.partition import compute_sets
from advisor.plan.admission import held_alone_mib, similar_in_memory, tenants
from advisor.report.forecast import SCHEMA
from advisor.report.format import NOT_MEASURED, number, plain_table, share
from advisor.report.record_documents import (
    GpusDocument,
    LayoutsDocument,
    MeasuredDocument,
    ProfileFields,
    ProfilesDocument,
    WorkloadsDocument,
)
from advisor.sharing import Instance
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload

_UNKNOWN = "unknown"
_COUNTERS = {
    None: "none",
    "gpm": "GPM",
    "dcgm": "DCGM, where it counts on this GPU",
    "nvml": "NVML utilisation only",
}


def gpus_table(models: Iterable[Gpu], profiled: Sequence[str]) -> Table:
    """Return a table of GPU models; `profiled` holds the keys of those with profiles."""
    table = plain_table("GPU", "SMs", "memory", "bandwidth", "power", "MIG", "profiles")
    for gpu in models:
        table.add_row(
            gpu.key + (", from its driver" if DESCRIBED in gpu.sources else ""),
            f"{gpu.sms}",
            f"{gpu.memory_mib:,} MiB",
            _known(gpu.bandwidth_gb_s, "GB/s"),
            _known(gpu.power_limit_w, "W"),
            counted(len(gpu.mig), "kind") if gpu.mig else "no",
            "measured" if gpu.key in profiled else "estimated",
        )
    return table


def live_lines(gpus: Sequence[LiveGpu | BrokenGpu]) -> list[str]:
    """Return a few lines for each GPU of this machine."""
    lines = []
    for gpu in gpus:
        if isinstance(gpu, BrokenGpu):
            lines.append(f"GPU {gpu.index} does not answer: {gpu.problem}")
        else:
            processes = [f"{each.pid} ({_known(each.memory_mib, 'MiB')})" for each in gpu.processes]
            facts = [*live_facts(gpu), ("processes", ", ".join(processes) or "none")]
            lines += [live_name(gpu), *(f"  {name:9}  {value}" for name, value in facts)]
    return lines or ["The driver lists no GPU."]


def gpus_document(
    models: Iterable[Gpu],
    profiled: Sequence[str],
    live: Sequence[LiveGpu | BrokenGpu],
    problem: str | None,
) -> GpusDocument:
    """Return what ``advisor gpus --json`` prints; `problem`: why reading `live` failed."""
    return {
        "schema": SCHEMA,
        "catalogue": [asdict(gpu) for gpu in models],
        "profiled": list(profiled),
        "in_machine": [asdict(gpu) for gpu in live],
        "problem": problem,
    }


def workloads_table(workloads: Iterable[Workload]) -> Table:
    """Return a table of workloads with the length of an epoch."""
    table = plain_table("workload", "examples an epoch")
    for workload in workloads:
        table.add_row(workload.name, _known(workload.examples_per_epoch, ""))
    return table


def profiles_table(profiles: Mapping[str, Profile], *, details: bool = False) -> Table:
    """Return profiles with pace, the share of a step in which their kernels run, and memory.

    A step that varied by 15 % or more within its measurement names that share: measure it again.
    With `details`, or if a profile is estimated, also the fastest step, and the date or the source.
    """
    details |= any(each.estimated_from is not None for each in profiles.values())
    more = ("fastest", "measured") if details else ()
    table = plain_table("profile", "step", "varied", "kernel", "memory", *more)
    for name, profile in profiles.items():
        varied = "" if profile.unsteady is None else share(profile.unsteady)
        step = f"{number(1000 * profile.step_s)} ms"
        if profile.workload.source == "duration":
            step = "nominal"
        origin = clean(profile.provenance.date[:10]) if profile.provenance else NOT_MEASURED
        if profile.estimated_from is not None:
            origin = f"estimated from {profile.estimated_from}"
        more = (f"{number(1000 * profile.fastest_step_s)} ms", origin) if details else ()
        table.add_row(
            clean(name),
            step,
            varied,
            share(profile.busy_share),
            _known(profile.memory.device_mib, "MiB"),
            *more,
        )
    return table


def profiles_document(gpu: str, profiles: Mapping[str, Profile]) -> ProfilesDocument:
    """Return what ``advisor profiles --json`` prints; kernel traces are left out."""
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "profiles": [{"name": name, **_profile(each)} for name, each in profiles.items()],
    }


def written_profiles_document(profiles: Mapping[str, Profile]) -> MeasuredDocument:
    """Return what ``advisor profile --json`` prints of the profiles in the files it wrote."""
    return {
        "schema": SCHEMA,
        "profiles": [
            {"name": each.name, "file": file, "gpu": each.gpu, **_profile(each)}
            for file, each in profiles.items()
        ],
    }


def _profile(profile: Profile) -> ProfileFields:
    nominal = profile.workload.source == "duration"
    return {
        "step_s": None if nominal else profile.step_s,
        "fastest_step_s": None if nominal else profile.fastest_step_s,
        "unsteady": profile.unsteady,
        "epoch_s": profile.epoch_s,
        "gpu_busy": profile.busy_share,
        "steps_of_round": None if profile.trace is None else profile.trace.steps,
        "epoch_end": None if profile.epoch_end is None else asdict(profile.epoch_end),
        "memory": asdict(profile.memory),
        "provenance": None if profile.provenance is None else asdict(profile.provenance),
        "estimated_from": profile.estimated_from,
    }


def workloads_document(workloads: Iterable[Workload]) -> WorkloadsDocument:
    """Return what ``advisor workloads --json`` prints."""
    return {"schema": SCHEMA, "workloads": [asdict(each) for each in workloads]}


def live_name(gpu: LiveGpu) -> str:
    """Return the GPU's name and driver; a MIG device goes by its UUID."""
    key = gpu.catalogue_key or "not in the catalogue"
    device = gpu.uuid if OF_MIG in gpu.product else f"GPU {gpu.index}"
    return f"{device}: {gpu.product}, {key}, driver {gpu.driver}"


def live_facts(gpu: LiveGpu) -> list[tuple[str, str]]:
    """Return facts about the GPU as a whole: name and value."""
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
    """Return a row for each process on it, with those of `jobs` that hold as much memory."""
    held_mib, clients, rows = held_alone_mib(job.profile for job in jobs), tenants(gpu), []
    for process in gpu.processes:
        similar = ", ".join(similar_in_memory(process, held_mib)) or "none of the jobs"
        rows.append(
            {
                "process": str(process.pid),
                "holds": _known(process.memory_mib, "MiB"),
                "as much as": similar if process in clients else "the MPS server",
            }
        )
    return rows


def _known(value: float | None, unit: str) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f} {unit}".rstrip()


_MEDIA = "+me"
_OTHERS = (
    "Ways: number of placements of the same instances, one of which may have the media engines. "
    "All of them: --all."
)
_UNTRIED = "All layouts are computed; none was tested on a GPU with MIG on."


def layouts_document(
    gpu: Gpu, profiles: Sequence[MigProfile], sets: PlacementSets
) -> LayoutsDocument:
    """Return what ``advisor layouts --json`` prints; starts and sizes in memory slices."""
    return {
        "schema": SCHEMA,
        "gpu": gpu.key,
        "profiles": [profile.name for profile in profiles],
        "valid_placement_sets": sets.valid,
        "maximal": [
            [
                {
                    "profile": each.profile,
                    "start": each.start,
                    "size": profile_of(gpu, each.profile).memory_slices,
                }
                for each in layout
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
) -> Group:
    """Return MIG profiles, their compute instances, and full layouts.

    Similar layouts have the same instances, wherever these lie and whichever has media engines: the
    first of them is listed, or with `every` all.
    """
    used = f" with {', '.join(map(str, in_use))} in use (*)" if in_use else ""
    heading = (
        f"{gpu.key}{used}: {counted(sets.valid, 'valid placement set')}; nothing can be added to "
        f"{len(sets.maximal):,} of them"
    )
    table = plain_table("profile", "id", "memory", "SMs", "most", "starts at memory slice")
    for profile in profiles:
        table.add_row(
            profile.name,
            f"{profile.profile_id}",
            f"{profile.memory_mib:,} MiB",
            _count(profile.sms),
            f"{profile.max_instances}",
            ", ".join(map(str, profile.starts)),
        )
    parts: list[RenderableType] = [Text(heading), "", table, ""]
    shared = [profile for profile in profiles if len(compute_sets(gpu, profile.name)) > 1]
    if shared:
        table = plain_table("one of", "compute instances that share its memory: all of it, or")
        for profile in shared:
            ways = [Counter(way) for way in compute_sets(gpu, profile.name) if len(way) > 1]
            table.add_row(
                profile.name,
                ", ".join(
                    "+".join(f"{n}x{size}c" if n > 1 else f"{size}c" for size, n in way.items())
                    for way in ways
                ),
            )
        parts += [table, ""]
    full = dict(enumerate(reversed(sets.maximal), start=1))
    similar = {ordinal: [ordinal] for ordinal in full} if every else _similar(full)
    table = plain_table("no.", "instances @ their first memory slices", "SMs", "ways")
    for ordinal, numbers in similar.items():
        layout = full[ordinal]
        sms = [profile_of(gpu, each.profile).sms for each in layout]
        total = None if None in sms else sum(each or 0 for each in sms)
        instances = _placed(layout, _used(layout, in_use))
        table.add_row(f"{ordinal}", instances, _count(total), f"{len(numbers)}")
    parts += [table, ""]
    if len(similar) < len(full):
        parts += [Text(_OTHERS), ""]
    inside = gpu.sources.get("compute_instances", "no source lists them")
    places = gpu.sources.get("mig") or gpu.sources[DESCRIBED]
    notes = f"Profiles and places: {places}.\nCompute instances: {inside}.\n{_UNTRIED}"
    return Group(*parts, Text(notes))


def _placed(layout: Sequence[Instance], used: Sequence[Instance]) -> str:
    """Profiles and first memory slices, as ``"2g.35gb@0,2 3g.71gb@4*"``; a star: in use."""
    words = []
    for name, equal in groupby(layout, lambda each: each.profile):
        starts = (f"{each.start}*" if each in used else f"{each.start}" for each in equal)
        words.append(f"{name}@{','.join(starts)}")
    return " ".join(words)


def _similar(full: Mapping[int, Sequence[Instance]]) -> dict[int, list[int]]:
    """Numbers of similar layouts, by the first of them."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for ordinal, layout in full.items():
        instances = sorted(each.profile.removesuffix(_MEDIA) for each in layout)
        groups.setdefault(tuple(instances), []).append(ordinal)
    for numbers in groups.values():
        numbers.sort(key=lambda ordinal: any(_MEDIA in each.profile for each in full[ordinal]))
    return {numbers[0]: numbers for numbers in groups.values()}


def _used(layout: Sequence[Instance], in_use: Sequence[Instance]) -> list[Instance]:
    """The instances of `layout` that are `in_use`; without a start, the first of their profile."""
    used = [instance for instance in layout if instance in in_use]
    missing = Counter(instance.profile for instance in in_use if instance.start is None)
    for instance in layout:
        if missing[instance.profile] and instance not in used:
            missing[instance.profile] -= 1
            used.append(instance)
    return used


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value}"
