"""Numbers of jobs from what a cluster's monitoring recorded of their GPUs.

DCGM and ``nvidia-smi`` count for a whole GPU. So a job's numbers are taken from the moments in
which it had its GPU to itself, and a job that never had is left out with the reason.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import Literal, get_args

from advisor.errors import InvalidInput, counted
from advisor.workload.minimal_profile import MinimalProfile, idle
from advisor.workload.reading import DAY_S

Profiled = Literal["sm_active", "sm_occupancy", "tensor_active", "dram_active"]
Quantity = (
    Literal["coarse_busy", "busy", "memory_busy", "memory_mib", "power_w", "step_s"] | Profiled
)
Labels = Mapping[str, str]

# Units: METRICS.md of NVIDIA/dcgm-exporter. The driver's utilisation is of its last sample period,
# that of the profiling module of the whole time between two samples.
DCGM_FIELDS: Mapping[str, tuple[Quantity, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("coarse_busy", 0.01),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("busy", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active", 1.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active", 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_busy", 0.01),
    "DCGM_FI_DEV_FB_USED": ("memory_mib", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
}

PROFILED: tuple[Profiled, ...] = get_args(Profiled)

# DCGM writes values near 2^63 where it has none.
_MOST: Mapping[Quantity, float] = {"memory_mib": 2.0**24, "power_w": 1e4, "step_s": DAY_S}
_MOST_SHARE = 1.05  # of two clocks read a little apart

JOB_LABELS = {"pod": "namespace", "hpc_job": ""}
"""Labels of a job in the order of preference, with those of its namespace."""
_HOSTS = ("Hostname", "instance")
_EXPORTER = "dcgm-exporter"

_NAMELESS = (
    "no series has a job in its labels exported_pod, pod or hpc_job. Name the label with --by; "
    "--by gpu counts all that ran on a GPU as one job."
)

# Below, a GPU idles: while its job loads, evaluates on the CPU or waits.
_LEAST_BUSY = 0.01
# The profiling counter can stick while the GPU is at work, mostly at 0 (dcgm-exporter issue 662).
# The driver's utilisation contradicts a counter below `_LEAST_BUSY` if it is `_CLEARLY_BUSY`, and
# one that repeats a value so many times if it is far from that, or less far but changing. It is
# itself wrong if it is 0 while the GPU takes more watts than any does idle.
_CLEARLY_BUSY, _REPEATS, _FAR, _CHANGING, _BUSY_W = 0.1, 10, 0.5, 0.2, 250.0

CURE = "A profiling counter that is stuck counts again after `dcgmi dmon -e 1001` on its host."

# A profile needs so many samples in which the job was active and alone.
LEAST_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity of one GPU over time, or ``"step_s"`` of one job; points are (epoch_s, value).

    Shares are 0 to 1, sizes MiB. Points without a time of day have the number of their sample.
    """

    quantity: Quantity
    labels: Labels
    points: Sequence[tuple[float, float]]

    @property
    def gpu(self) -> str:
        """The GPU, or its MIG instance, among those of all hosts."""
        labels = self.labels
        host = next((labels[host] for host in _HOSTS if host in labels), "")
        gpu = labels.get("UUID") or f"{host}/{labels.get('gpu', '')}"
        return f"{gpu}/{labels.get('GPU_I_ID', '')}"


def renamed(label: str) -> str:
    """Return the name under which Prometheus keeps a label that it sets itself for the exporter."""
    return f"exported_{label}"


def has_labels(labels: Labels, wanted: Labels) -> bool:
    """Return whether a series has the `wanted` labels: the job's, not those of the exporter."""
    return all(labels.get(renamed(name), labels.get(name)) == wanted[name] for name in wanted)


def in_range(quantity: Quantity, value: float) -> float | None:
    """Return `value`, a share as 1 at most; None if it cannot be, as DCGM writes for no value."""
    if not 0 <= value <= _MOST.get(quantity, _MOST_SHARE):
        return None
    return value if quantity in _MOST else min(1.0, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job as the history shows it; numbers are None where it does not.

    Attributes:
        name: Its pod, Slurm job or GPU, with the namespace before it if several have that name.
        model: Its GPU, as the driver names it.
        gpus: The most GPUs that it had at once.
        samples: Samples in which it was active and alone on its GPU.
        run_s: Time for which it had a GPU.
        active_s: The part of that in which the GPU worked, as far as it can be seen.
        busy: Share of time in which a kernel ran: the median of those samples, 0..1.
        memory_busy: The same of time in which memory was read or written.
        profiled: Medians of DCGM's other profiling counters in those samples, by name, 0..1.
        memory_mib: The most that its GPU held while it was alone there.
        power_w: Mean power of the GPU in those samples.
        step_s: Median of the metric that has its step, in seconds.
        first_s: Time of its first sample; None without times.
        doubted: Samples in which the driver's utilisation contradicted the profiling counter.
        problem: Why there are no numbers of it.
    """

    name: str
    model: str | None = None
    gpus: int = 1
    samples: int = 0
    run_s: float | None = None
    active_s: float | None = None
    busy: float | None = None
    memory_busy: float | None = None
    profiled: Mapping[Profiled, float] = field(default_factory=dict)
    memory_mib: float | None = None
    power_w: float | None = None
    step_s: float | None = None
    first_s: float | None = None
    doubted: int = 0
    problem: str | None = None

    def minimal(self, gpu: str) -> MinimalProfile:
        """Return its profile of bare numbers on the GPU model of this key.

        Raises:
            InvalidInput: A number cannot be, or is not known.
        """
        assert self.memory_mib is not None
        if self.step_s is None and self.active_s is None:
            raise InvalidInput(
                "samples have no times, so its duration is not known. Pass --interval or --step-s"
            )
        shares = {name: round(share, 4) for name, share in self.profiled.items()}
        return MinimalProfile(
            schema=1,
            workload=self.name,
            gpu=gpu,
            batch_size=1,
            step_s=self.step_s,
            memory_mib=round(self.memory_mib, 1),
            gpu_utilization=_rounded(self.busy, 4),
            power_w=_rounded(self.power_w, 1),
            memory_utilization=_rounded(self.memory_busy, 4),
            duration_s=_rounded(self.active_s, 1),
            sm_active=shares.get("sm_active"),
            sm_occupancy=shares.get("sm_occupancy"),
            tensor_active=shares.get("tensor_active"),
            dram_active=shares.get("dram_active"),
        )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


_Job = tuple[str, str]  # namespace and name
_Place = tuple[str, float]  # a GPU at a moment


class _Samples:
    """The samples of one job: its numbers at each place, and the labels of its GPUs."""

    def __init__(self) -> None:
        self.at: dict[_Place, dict[Quantity, float]] = defaultdict(dict)
        self.models: set[str] = set()
        self.slices: set[str] = set()
        self.steps_s: list[float] = []

    def add(self, series: Series) -> None:
        labels = series.labels
        self.models.update(filter(None, [labels.get("modelName")]))
        self.slices.update(filter(None, [labels.get("GPU_I_PROFILE") or labels.get("GPU_I_ID")]))
        gpu = series.gpu
        for at_s, value in series.points:
            self.at[gpu, at_s][series.quantity] = value


def recorded_jobs(
    history: Sequence[Series],
    by: str | None,
    interval_s: float | None = None,
    *,
    timed: bool = True,
) -> list[RecordedJob]:
    """Return the jobs in `history` by name; `by` is the label that names them, or None.

    Samples lie `interval_s` apart; None: as far as their times do, if they are `timed`.

    Raises:
        InvalidInput: No label names jobs.
    """
    label, space = _label_of_jobs(history, by)
    jobs: dict[_Job, _Samples] = defaultdict(_Samples)
    owners: dict[_Place, set[_Job]] = defaultdict(set)
    for series in history:
        if series.quantity == "step_s":
            continue
        name = series.labels.get(label, "")
        if name and not (label == "pod" and _EXPORTER in name):  # its own pod, of an idle GPU
            job = series.labels.get(space, ""), name
            jobs[job].add(series)
            gpu = series.gpu
            for at_s, _ in series.points:
                owners[gpu, at_s].add(job)
    for series in history:
        for (_, name), samples in jobs.items() if series.quantity == "step_s" else ():
            if name in (series.labels.get(label), series.labels.get("pod")):
                samples.steps_s += [value for _, value in series.points]
    if not jobs:
        raise InvalidInput(_NAMELESS)
    uses, kind = Counter(name for _, name in jobs), "gpu" if label == "gpu" else ""
    names = {
        (space, name): f"{space}.{kind}{name}" if uses[name] > 1 and space else f"{kind}{name}"
        for space, name in jobs
    }
    if interval_s is None and timed:  # the median between two samples of a GPU
        interval_s = _middle(
            after - before
            for (gpu, before), (next_gpu, after) in pairwise(sorted(owners))
            if gpu == next_gpu
        )
    return sorted(
        (_recorded(names, job, jobs[job], owners, interval_s, timed) for job in jobs),
        key=lambda each: each.name,
    )


def _label_of_jobs(history: Iterable[Series], by: str | None) -> tuple[str, str]:
    present = {
        name
        for series in history
        if series.quantity != "step_s"
        for name, value in series.labels.items()
        if value
    }
    if by is not None:
        if renamed(by) in present:
            return renamed(by), ""
        if by not in present:
            raise InvalidInput(
                f"no series has the label {by}. They have {', '.join(sorted(present))}."
            )
        return by, next((host for host in _HOSTS if host in present), "") if by == "gpu" else ""
    for label, space in JOB_LABELS.items():
        if renamed(label) in present:  # `label` is then the exporter's own
            return renamed(label), space and renamed(space)
        if label in present:
            return label, space
    raise InvalidInput(_NAMELESS)


def _recorded(
    names: Mapping[_Job, str],
    job: _Job,
    samples: _Samples,
    owners: Mapping[_Place, set[_Job]],
    interval_s: float | None,
    timed: bool,
) -> RecordedJob:
    """The numbers of `job`, or why there are none."""
    alone = {place: row for place, row in samples.at.items() if owners[place] == {job}}
    doubted = _contradicted(alone)
    for place in doubted:  # all of that module are stuck at once
        alone[place] = {
            name: value
            for name, value in alone[place].items()
            if name != "busy" and name not in PROFILED
        }
    watched = [row for row in alone.values() if _busy(row) is not None]
    active = [row for row in watched if (_busy(row) or 0.0) >= _LEAST_BUSY]
    times = Counter(at_s for _, at_s in samples.at)
    counted = [row for row in active if row.get("sm_active") != 0]  # 0 of a busy GPU is stuck
    run_s = None if interval_s is None else interval_s * len(times)
    recorded = RecordedJob(
        name=names[job],
        model=next(iter(samples.models), None),
        gpus=max(times.values()),
        samples=len(active),
        run_s=run_s,
        # Of moments that it shared, only the length is known.
        active_s=None if run_s is None or not watched else run_s * len(active) / len(watched),
        busy=_middle(map(_busy, active)),
        memory_busy=_middle(row.get("memory_busy") for row in active),
        profiled={
            name: share
            for name in PROFILED
            if (share := _middle(row.get(name) for row in counted)) is not None
        },
        memory_mib=max(
            (row["memory_mib"] for row in alone.values() if "memory_mib" in row), default=None
        ),
        power_w=fmean(watts) if (watts := _numbers(row.get("power_w") for row in active)) else None,
        step_s=_middle(samples.steps_s),
        doubted=len(doubted),
        first_s=min(times) if timed else None,
    )
    others = {names[other] for place in samples.at for other in owners[place]} - {names[job]}
    problem = next(_problems(recorded, samples, list(alone.values()), sorted(others)), None)
    return replace(recorded, problem=problem)


def _contradicted(rows: Mapping[_Place, Mapping[Quantity, float]]) -> set[_Place]:
    """The places at which the driver's utilisation shows that the profiling counter is stuck."""
    places: set[_Place] = set()

    def value_on_gpu(place: _Place) -> tuple[str, float]:
        value = rows[place]["busy"]
        return place[0], 0.0 if value < _LEAST_BUSY else value

    both = sorted(place for place, row in rows.items() if {"busy", "coarse_busy"} <= row.keys())
    for (_, value), run in groupby(both, value_on_gpu):
        coarse = {
            place: rows[place]["coarse_busy"]
            for place in run
            if rows[place]["coarse_busy"] or rows[place].get("power_w", 0.0) < _BUSY_W
        }
        shares = coarse.values()
        if len(coarse) >= _REPEATS:
            changing = max(shares) - min(shares) > _CHANGING
            apart = _CLEARLY_BUSY if value == 0 else _CHANGING if changing else _FAR
            if abs(fmean(shares) - value) > apart:
                places |= coarse.keys()
        if value == 0:
            places |= {place for place, share in coarse.items() if share >= _CLEARLY_BUSY}
    return places


def _problems(
    job: RecordedJob,
    samples: _Samples,
    alone: Sequence[Mapping[Quantity, float]],
    others: Sequence[str],
) -> Iterator[str]:
    if samples.slices:
        yield (
            f"it ran on a MIG instance ({', '.join(sorted(samples.slices))}), whose counters are "
            "of that slice. Let it run on a whole GPU once"
        )
    if len(samples.models) > 1:
        yield f"it ran on GPUs of several models: {', '.join(sorted(samples.models))}"
    if not alone:
        listed = ", ".join(others[:3]) + (" and others" if len(others) > 3 else "")
        yield (
            f"it always shared its GPU, with {listed}, and counters are of the whole GPU. Let it "
            "run alone once"
        )
    if all(_busy(row) is None for row in alone):
        yield "the history has no GPU utilisation of it, e.g. DCGM_FI_DEV_GPU_UTIL"
    if job.memory_mib is None:
        yield "the history has no GPU memory of it, e.g. DCGM_FI_DEV_FB_USED"
    if not job.samples and job.memory_mib:
        watts = max(_numbers(row.get("power_w") for row in alone), default=None)
        power = "" if watts is None else f" and takes up to {watts:.0f} W"
        yield f"{idle(job.memory_mib, power)}. Choose a range in which it trains. {CURE}"
    if job.samples < LEAST_SAMPLES:
        yield (
            f"it was active and alone in {counted(job.samples, 'sample')}, and {LEAST_SAMPLES} are "
            "the fewest. Choose a longer range, or a shorter --interval"
        )


def _busy(row: Mapping[Quantity, float]) -> float | None:
    return row.get("busy", row.get("coarse_busy"))


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _middle(values: Iterable[float | None]) -> float | None:
    return median(numbers) if (numbers := _numbers(values)) else None
