"""GPU models, this machine's GPUs, workloads, profiles and MIG layouts, as tables and JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from advisor.documents import As, Inline
from advisor.errors import clean, counted
from advisor.hardware.gpus import DESCRIBED, OF_MIG, Gpu, MigProfile
from advisor.hardware.machine import BrokenGpu, LiveGpu, Provenance
from advisor.hardware.mig import PlacementSets, profile_of
from advisor.hardware.partition import compute_sets
from advisor.learn.observations import MeasuredGpu, shared_runs
from advisor.learn.scores import Scores
from advisor.plan.admission import held_alone_mib, similar_in_memory, tenants
from advisor.prediction.model import Data, Model
from advisor.report.format import NOT_MEASURED, FittedTable, number, percent, plain_table, share
from advisor.sharing import Instance
from advisor.workload.job import Job
from advisor.workload.profile import EpochEnd, Memory, Profile
from advisor.workload.profile_checks import odd_ones
from advisor.workload.spec import Workload

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuList:
    """GPU models, and the GPUs in this machine; `problem` is why these could not be read."""

    catalogue: tuple[Gpu, ...]
    profiled: tuple[str, ...]
    in_machine: tuple[LiveGpu | BrokenGpu, ...]
    problem: str | None


@dataclass(frozen=True, slots=True)
class WorkloadList:
    """The workloads that can be measured by name."""

    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedProfile:
    """A profile without its kernel trace; `unsteady` is the share by which its steps varied.

    Steps are None if only the duration of the job is known. `file` is one that was written now.
    """

    name: str
    gpu: str
    step_s: float | None
    fastest_step_s: float | None
    unsteady: float | None
    epoch_s: float | None
    gpu_busy: float | None
    steps_of_round: int | None
    epoch_end: EpochEnd | None
    memory: Memory
    provenance: Provenance | None
    estimated_from: str | None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ProfileList:
    """The profiles for a GPU."""

    gpu: str
    profiles: tuple[ListedProfile, ...]


@dataclass(frozen=True, slots=True)
class MeasuredProfiles:
    """The profiles that `advisor profile` measured."""

    profiles: tuple[ListedProfile, ...]


@dataclass(frozen=True, slots=True)
class Layouts:
    """MIG profiles of a GPU, the number of valid placements, and the layouts that are full."""

    gpu: Annotated[Gpu, As("key")]
    profiles: tuple[MigProfile, ...]
    sets: Annotated[PlacementSets, Inline()]


_COUNTERS = {
    None: "none",
    "gpm": "GPM",
    "dcgm": "DCGM, if it reports them for this GPU",
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


def workloads_table(listed: WorkloadList) -> Table:
    """Return a table of workloads with the length of an epoch."""
    table = plain_table("workload", "examples an epoch")
    for workload in listed.workloads:
        table.add_row(workload.name, _known(workload.examples_per_epoch, ""))
    return table


def listed_profile(name: str, profile: Profile, file: str | None = None) -> ListedProfile:
    """Return `profile` for a list, under the `name` by which it is found."""
    nominal = profile.workload.source == "duration"
    return ListedProfile(
        name=name,
        gpu=profile.gpu,
        step_s=None if nominal else profile.step_s,
        fastest_step_s=None if nominal else profile.fastest_step_s,
        unsteady=profile.unsteady,
        epoch_s=profile.epoch_s,
        gpu_busy=profile.busy_share,
        steps_of_round=None if profile.trace is None else profile.trace.steps,
        epoch_end=profile.epoch_end,
        memory=profile.memory,
        provenance=profile.provenance,
        estimated_from=profile.estimated_from,
        file=file,
    )


def profiles_table(profiles: Mapping[str, Profile], *, details: bool = False) -> Table:
    """Return profiles with pace, the share of a step in which their kernels run, and memory.

    A step that varied by 15 % or more while it was measured shows that share. With `details`, or if
    a profile is estimated, the rows also have the fastest step, and the date or the source.
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
        ("busy", _UNKNOWN if busy is None else f"a kernel runs {share(busy)} of the time"),
        ("power", f"{_known(gpu.power_w, 'W')} of {_known(gpu.power_limit_w, 'W')}"),
        ("modes", f"{mig}; compute mode {gpu.compute_mode or _UNKNOWN}"),
        ("MPS", ", ".join(daemons) or "no daemon runs"),
        ("counters", _COUNTERS[gpu.counters]),
    ]


def process_rows(gpu: LiveGpu, jobs: Sequence[Job]) -> list[dict[str, str]]:
    """Return a row for each process on the GPU, with those of `jobs` that hold as much memory."""
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
    "Ways: number of placements of these instances, one of which may have the media engines. "
    "--all prints every placement."
)
_UNTRIED = "All layouts are computed; none was tested on a GPU in MIG mode."


def layouts_report(
    listed: Layouts, in_use: Sequence[Instance] = (), *, every: bool = False
) -> Group:
    """Return MIG profiles, their compute instances, and full layouts.

    Similar layouts have the same instances in other places, or media engines in another instance.
    The first of them is listed, or with `every` all.
    """
    gpu, profiles, sets = listed.gpu, listed.profiles, listed.sets
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
        table = plain_table("one of", "compute instances that share its memory, instead of one")
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
        instances = _placed(layout, in_use)
        table.add_row(f"{ordinal}", instances, _count(total), f"{len(numbers)}")
    parts += [table, ""]
    if len(similar) < len(full):
        parts += [Text(_OTHERS), ""]
    inside = gpu.sources.get("compute_instances", "no source lists them")
    places = gpu.sources.get("mig") or gpu.sources[DESCRIBED]
    notes = f"Profiles and places: {places}.\nCompute instances: {inside}.\n{_UNTRIED}"
    return Group(*parts, Text(notes))


def _similar(full: Mapping[int, Sequence[Instance]]) -> dict[int, list[int]]:
    """Numbers of similar layouts, by the first of them."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for ordinal, layout in full.items():
        instances = sorted(each.profile.removesuffix(_MEDIA) for each in layout)
        groups.setdefault(tuple(instances), []).append(ordinal)
    for numbers in groups.values():
        numbers.sort(key=lambda ordinal: any(_MEDIA in each.profile for each in full[ordinal]))
    return {numbers[0]: numbers for numbers in groups.values()}


def _placed(layout: Sequence[Instance], in_use: Sequence[Instance]) -> str:
    """Profiles and first memory slices, as ``"2g.35gb@0,2 3g.71gb@4*"``; a star: in use.

    An instance in use without a start is the first of its profile.
    """
    missing = Counter(instance.profile for instance in in_use if instance.start is None)
    words = []
    for name, equal in groupby(layout, lambda each: each.profile):
        starts = []
        for each in equal:
            first = each not in in_use and missing[name] > 0
            missing[name] -= first
            starts.append(f"{each.start}{'*' if first or each in in_use else ''}")
        words.append(f"{name}@{','.join(starts)}")
    return " ".join(words)


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value}"


@dataclass(frozen=True, slots=True)
class UsedRuns:
    """Numbers of runs of a GPU, in all and used, and of the user's own runs."""

    runs: int
    used: int
    own: int
    own_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """A fit of the model, and the runs and profiles of each GPU that it was fitted to."""

    gpu: str
    file: str
    fitted_to: dict[str, Data]
    used: dict[str, UsedRuns]
    runs_differ: str | None
    own_paces_of: tuple[str, ...]


def fit_of(
    file: Path, model: Model, measured: MeasuredGpu, others: Sequence[MeasuredGpu]
) -> FittedModel:
    """Return the answer of ``advisor fit``: a fit to runs on a GPU, and on `others`."""

    def used(on: MeasuredGpu) -> UsedRuns:
        every, own = (len(shared_runs(on.profiles, runs, on.gpu)) for runs in (on.runs, on.own))
        return UsedRuns(len(on.runs), every, len(on.own), own)

    return FittedModel(
        gpu=measured.gpu.key,
        file=str(file),
        fitted_to=model.data,
        used={each.gpu.key: used(each) for each in (measured, *others)},
        runs_differ=odd_ones([run.provenance for run in measured.runs]),
        own_paces_of=tuple(sorted(model.own_paces.get(measured.gpu.key, ()))),
    )


def fit_report(fit: FittedModel) -> Text:
    """Return a fit as sentences."""
    lines = [
        f"{clean(fit.file)}: fitted to {counted(sum(data.runs.values()), 'run')} of "
        f"{counted(data.profiles, 'profile')} on {key}."
        for key, data in fit.fitted_to.items()
    ]
    for key, runs in fit.used.items():
        lines.append(
            f"Runs used on {key}: {runs.used - runs.own_used} of "
            f"{counted(runs.runs - runs.own, 'run')} that came with the profiles, and "
            f"{runs.own_used} of your {runs.own} own."
        )
    if fit.runs_differ:
        lines.append(f"The runs differ: {fit.runs_differ}.")
    if fit.own_paces_of:
        lines.append(
            f"Predictions now follow the pace of your own runs of {', '.join(fit.own_paces_of)}."
        )
    return Text("\n".join(lines))


def scores_report(scores: Scores) -> Group:
    """Return what ``advisor evaluate`` prints."""
    table = FittedTable(
        title=f"{scores.gpu}: errors of predicted step times", box=SIMPLE, pad_edge=False
    )
    for heading in ("sharing", "runs", "jobs", "mean", "median", "P90", "in 90 % interval"):
        table.add_column(heading, justify="left" if heading == "sharing" else "right")
    for row in scores.modes:
        shares = map(percent, (row.mape, row.median, row.p90, row.coverage90))
        table.add_row(row.mode, str(row.runs), str(row.n), *shares)
    notes = []
    if scores.left_out:
        notes.append(
            f"{counted(scores.left_out, 'run')} not scored: a tenant ended early or has no profile."
        )
    if choices := scores.choices:
        always = "" if choices.always_mps is None else f" Always MPS: {percent(choices.always_mps)}"
        notes.append(
            f"{choices.sets} job sets ran in several ways. The choice of `recommend` gave away "
            f"{percent(choices.mean)} of the best measured throughput on average, "
            f"{percent(choices.worst)} at worst.{always and always + '.'}"
        )
    return Group(table, *notes)
