"""A GPU with jobs in it, as bars to scale; whoever draws needs no more than these numbers.

Each job has a row. In one panel lies the memory that it takes, in the other the SMs that it may
use, and where there is MIG, the instance around either.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, assert_never

from advisor.gpu.catalogue import Gpu, MigProfile
from advisor.gpu.layouts import place, profile_of
from advisor.prediction.answer import MixPrediction
from advisor.prediction.rehearsal import limit_shares
from advisor.reporting import figures
from advisor.sharing import Mig, Mps, Naive, Serial, Sharing

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of memory or of SMs on the row of one job.

    Attributes:
        row: Names the job and tells copies apart, e.g. ``"2 · resnet26-cifar10-bs128"``.
        job: Its name, the same for copies.
        kind: ``"job"``: what the job takes; ``"instance"``: the MIG instance it is in.
        start: Left end, in GiB or SMs.
        end: Right end, likewise.
        end_low: Where the right end may lie at least; None where it is certain.
        end_high: Where the right end may lie at most; likewise.
        hint: One line on what this is.
    """

    row: str
    job: str
    kind: Literal["job", "instance"]
    start: float
    end: float
    end_low: float | None = None
    end_high: float | None = None
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """All bars of one plan.

    Attributes:
        rows: One for each job, in order, from the top.
        memory: In GiB from 0 to `memory_gib`.
        sms: In SMs from 0 to `sm_count`.
        caption: What the drawing shows, in a sentence.
    """

    rows: tuple[str, ...]
    memory: tuple[Bar, ...]
    sms: tuple[Bar, ...]
    memory_gib: float
    sm_count: int
    caption: str


def drawing(mix: MixPrediction, gpu: Gpu) -> Drawing:
    """The jobs of `mix` in `gpu`, to scale.

    Raises:
        NothingFits: A MIG instance has no place on `gpu`.
    """
    rows = tuple(f"{number} · {job.job}" for number, job in enumerate(mix.jobs, start=1))
    memory, sms = _instance_bars(mix, gpu, rows)
    return Drawing(
        rows=rows,
        memory=(*memory, *_memory_bars(mix, rows, _memory_starts(mix, gpu))),
        sms=(*sms, *_sm_bars(mix, gpu, rows)),
        memory_gib=gpu.memory_mib / _MIB_PER_GIB,
        sm_count=gpu.sms,
        caption=_caption(mix.sharing),
    )


def _memory_starts(mix: MixPrediction, gpu: Gpu) -> list[float]:
    """Where each job's memory begins, MiB; without MIG the order says nothing."""
    match mix.sharing:
        case Serial():
            return [0.0] * len(mix.jobs)
        case Mig():
            return [start for start, _ in _cuts(mix.sharing, gpu)]
        case Naive() | Mps():
            return [0.0, *accumulate(job.memory_mib for job in mix.jobs)][:-1]
        case _:
            assert_never(mix.sharing)


def _memory_bars(mix: MixPrediction, rows: Sequence[str], starts: Sequence[float]) -> Iterator[Bar]:
    for job, row, start_mib in zip(mix.jobs, rows, starts, strict=True):
        range_mib = job.memory_interval_mib
        yield Bar(
            row=row,
            job=job.job,
            kind="job",
            start=start_mib / _MIB_PER_GIB,
            end=(start_mib + job.memory_mib) / _MIB_PER_GIB,
            end_low=(start_mib + range_mib.p05) / _MIB_PER_GIB,
            end_high=(start_mib + range_mib.p95) / _MIB_PER_GIB,
            hint=f"takes {figures.gib(range_mib)}",
        )


def _sm_bars(mix: MixPrediction, gpu: Gpu, rows: Sequence[str]) -> Iterator[Bar]:
    spans = _sm_spans(mix.sharing, gpu, len(rows))
    for job, row, (start, end, hint) in zip(mix.jobs, rows, spans, strict=True):
        yield Bar(row=row, job=job.job, kind="job", start=start, end=end, hint=hint)


def _sm_spans(sharing: Sharing, gpu: Gpu, jobs: int) -> list[tuple[float, float, str]]:
    match sharing:
        case Serial():
            return [(0, gpu.sms, "all SMs, one job after another")] * jobs
        case Naive():
            return [(0, gpu.sms, "all SMs, in turns")] * jobs
        case Mps(limits) if limits:
            shares = limit_shares(limits, gpu)
            hints = (f"at most {cap:g} % of the SMs" for cap in limits)
            return [(0, gpu.sms * each, hint) for each, hint in zip(shares, hints, strict=True)]
        case Mps():
            return [(0, gpu.sms, "whatever SMs the others leave free")] * jobs
        case Mig():
            return _instance_sms(sharing, gpu)
        case _:
            assert_never(sharing)


def _instance_bars(
    mix: MixPrediction, gpu: Gpu, rows: Sequence[str]
) -> tuple[list[Bar], list[Bar]]:
    """The outlines of the MIG instances in either panel; none without MIG."""
    if not isinstance(mix.sharing, Mig):
        return [], []
    memory, sms = [], []
    cuts, sm_spans = _cuts(mix.sharing, gpu), _instance_sms(mix.sharing, gpu)
    for job, row, (start_mib, profile), sm_span in zip(mix.jobs, rows, cuts, sm_spans, strict=True):
        left, right, _ = sm_span
        hint = f"{profile.name}: {profile.memory_mib:,} MiB, {right - left:.0f} SMs"
        frame = Bar(row=row, job=job.job, kind="instance", start=left, end=right, hint=hint)
        end_mib = start_mib + profile.memory_mib
        sms.append(frame)
        memory.append(replace(frame, start=start_mib / _MIB_PER_GIB, end=end_mib / _MIB_PER_GIB))
    return memory, sms


def _cuts(sharing: Mig, gpu: Gpu) -> list[tuple[float, MigProfile]]:
    """Where each instance's memory begins, MiB, and its profile."""
    slice_mib = gpu.memory_mib / gpu.memory_slices
    placed = place(gpu, sharing.instances)
    return [((each.start or 0) * slice_mib, profile_of(gpu, each.profile)) for each in placed]


def _instance_sms(sharing: Mig, gpu: Gpu) -> list[tuple[float, float, str]]:
    """SMs of each instance, side by side in the order of their memory."""
    cuts = _cuts(sharing, gpu)
    in_order = sorted(range(len(cuts)), key=lambda job: cuts[job][0])
    spans: dict[int, tuple[float, float, str]] = {}
    left = 0.0
    for job in in_order:
        profile = cuts[job][1]
        right = left + _sms_of(profile, gpu)
        spans[job] = (left, right, f"the {right - left:.0f} SMs of its {profile.name}")
        left = right
    return [spans[job] for job in range(len(cuts))]


def _sms_of(profile: MigProfile, gpu: Gpu) -> float:
    """SMs of an instance; its share of the memory slices where nobody counted them."""
    return profile.sms or gpu.sms * profile.memory_slices / gpu.memory_slices


def _caption(sharing: Sharing) -> str:
    match sharing:
        case Serial():
            return "One job at a time: each has all memory and all SMs to itself."
        case Naive():
            return "Memory adds up; the jobs take turns on all SMs."
        case Mps(limits) if limits:
            return "Memory adds up; a limit is a cap, so the jobs' SMs may overlap."
        case Mps():
            return "Memory adds up; the jobs run side by side on whatever SMs are free."
        case Mig():
            return "Each job has memory and SMs of its own; the frame is its MIG instance."
        case _:
            assert_never(sharing)
