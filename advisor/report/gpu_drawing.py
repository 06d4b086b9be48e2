"""The bars of a drawing of a GPU with its jobs, to scale, for text and charts.

Each job has a row. One panel shows its memory, the other the SMs that it may use, both with the
MIG instance around them if there is one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, TypeVar, assert_never

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import limit_shares
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.report import units
from advisor.report.mig_drawing import cuts, cuts_of_jobs, sms_on_instances
from advisor.sharing import Arrangement, Hybrid, Sharing
from advisor.sharing.traversal import instance_sets, memories, restricted, running_together

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of memory, of SMs or of time on the row of one job.

    Attributes:
        row: Names the job and tells copies apart, e.g. ``"2 · resnet26-cifar10-bs128"``.
        job: Its name, the same for copies.
        kind: ``"job"``: what the job takes; ``"instance"``: the MIG instance it is in; or what it
            does in that time.
        start: Left end, in GiB, SMs or a unit of time.
        end: Right end, in the same unit.
        end_low: Where the right end may lie at least; None if it is certain.
        end_high: Upper end of the interval of the right end.
        hint: One line on what this is.
    """

    row: str
    job: str
    kind: Literal["job", "instance", "runs", "waits"]
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
    rows = row_names([job.job for job in mix.jobs])
    memory, sms = _instance_bars(mix, gpu, rows)
    starts = _of_each_job(mix, lambda sharing, jobs: _memory_starts(sharing, jobs, gpu))
    return Drawing(
        rows=rows,
        memory=(*memory, *_memory_bars(mix, rows, starts)),
        sms=(*sms, *_sm_bars(mix, gpu, rows)),
        memory_gib=gpu.memory_mib / _MIB_PER_GIB,
        sm_count=gpu.sms,
        caption=_caption(mix.sharing),
    )


def row_names(jobs: Sequence[str]) -> tuple[str, ...]:
    """What the row of each of `jobs` is called, which tells copies apart."""
    return tuple(f"{number} · {job}" for number, job in enumerate(jobs, start=1))


_Said = TypeVar("_Said")


def _of_each_job(
    mix: MixPrediction, said: Callable[[Arrangement, Sequence[JobPrediction]], Sequence[_Said]]
) -> list[_Said]:
    """What is `said` of each job, in order; of phases, of one group of jobs after another."""
    groups = [list(range(len(mix.jobs)))]
    if mix.sharing.mode == "phases":
        groups = running_together(mix.sharing, len(mix.jobs))
    found = {
        job: each
        for group in groups
        for job, each in zip(
            sorted(group),
            said(restricted(mix.sharing, sorted(group)), [mix.jobs[job] for job in sorted(group)]),
            strict=True,
        )
    }
    return [found[job] for job in range(len(mix.jobs))]


def _memory_starts(sharing: Arrangement, jobs: Sequence[JobPrediction], gpu: Gpu) -> list[float]:
    """Where each job's memory begins, MiB; without MIG the order says nothing."""
    for instances in instance_sets(sharing):
        return _starts_on_instances(instances, jobs, gpu)
    starts = [0.0] * len(jobs)
    for memory in memories(sharing, len(jobs)):
        numbers = [number for part in memory for number in part.jobs]
        held_mib = accumulate((jobs[number - 1].memory_mib for number in numbers), initial=0.0)
        for number, start_mib in zip(numbers, held_mib, strict=False):
            starts[number - 1] = start_mib
    return starts


def _starts_on_instances(hybrid: Hybrid, jobs: Sequence[JobPrediction], gpu: Gpu) -> list[float]:
    starts: dict[int, float] = {}
    for each, cut in zip(hybrid.places, cuts(hybrid, gpu), strict=True):
        next_mib = cut.start_mib
        for number in each.jobs:
            starts[number] = next_mib
            next_mib += jobs[number - 1].memory_mib
    return [starts[number] for number in sorted(starts)]


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
            hint=f"takes {units.gib(range_mib)}",
        )


def _sm_bars(mix: MixPrediction, gpu: Gpu, rows: Sequence[str]) -> Iterator[Bar]:
    spans = _of_each_job(mix, lambda sharing, jobs: _sm_spans(sharing, gpu, len(jobs)))
    for job, row, (start, end, hint) in zip(mix.jobs, rows, spans, strict=True):
        yield Bar(row=row, job=job.job, kind="job", start=start, end=end, hint=hint)


def _sm_spans(sharing: Arrangement, gpu: Gpu, jobs: int) -> list[tuple[float, float, str]]:
    match sharing.mode:
        case "serial":
            return [(0, gpu.sms, "all SMs, one job after another")] * jobs
        case "naive":
            return [(0, gpu.sms, "all SMs, in turns")] * jobs
        case "mps-limits":
            shares = limit_shares(sharing.limits, gpu.sms)
            hints = (f"at most {cap:g} % of the SMs" for cap in sharing.limits)
            return [(0, gpu.sms * each, hint) for each, hint in zip(shares, hints, strict=True)]
        case "mps":
            return [(0, gpu.sms, "whatever SMs the others leave free")] * jobs
        case "mig" | "hybrid" | "phases":
            (instances,) = instance_sets(sharing)
            return sms_on_instances(instances, gpu)
        case _:
            assert_never(sharing.mode)


def _instance_bars(
    mix: MixPrediction, gpu: Gpu, rows: Sequence[str]
) -> tuple[list[Bar], list[Bar]]:
    """The outlines of the MIG instances in either panel; none without MIG."""
    cuts = _of_each_job(mix, lambda sharing, jobs: cuts_of_jobs(sharing, gpu, len(jobs)))
    memory, sms = [], []
    for job, row, cut in zip(mix.jobs, rows, cuts, strict=True):
        if cut is None:
            continue
        frame = Bar(
            row=row, job=job.job, kind="instance",
            start=cut.first_sm, end=cut.first_sm + cut.sms, hint=cut.hint,
        )  # fmt: skip
        end_mib = cut.start_mib + cut.memory_mib
        sms.append(frame)
        memory.append(
            replace(frame, start=cut.start_mib / _MIB_PER_GIB, end=end_mib / _MIB_PER_GIB)
        )
    return memory, sms


def _caption(sharing: Sharing) -> str:
    match sharing.mode:
        case "serial":
            said = "One job at a time: each has all memory and all SMs to itself."
        case "naive":
            said = "Memory adds up; the jobs take turns on all SMs."
        case "mps":
            said = "Memory adds up; the jobs run side by side on whatever SMs are free."
        case "mps-limits":
            said = "Memory adds up; a limit is a cap, so the jobs' SMs may overlap."
        case "mig":
            said = "Each job has memory and SMs of its own; the frame is its MIG instance."
        case "hybrid":
            said = "Jobs on one MIG instance share what it has; the frame is the instance."
        case "phases":
            said = "One group of jobs at a time: each group has all memory and all SMs to itself."
        case _:
            assert_never(sharing.mode)
    return said
