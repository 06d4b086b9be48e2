"""The bars of a drawing of a GPU with its jobs, to scale, for text and charts.

Each job has a row; copies side by side share one. One panel shows memory, the other the SMs that a
job may use, both framed by its MIG instance if it has one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Literal

from advisor.hardware.catalogue import Gpu
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.report import units
from advisor.report.gpu_spots import Spot, spots_of
from advisor.report.sharing_words import words_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of memory, SMs or time in the row of one job.

    Attributes:
        row: Names the job and tells copies apart, e.g. ``"2 · resnet26-cifar10-bs128"``, or counts
            those that it stands for, e.g. ``"2-41 · resnet26-cifar10-bs128 x40"``.
        job: The job's name, equal for copies.
        kind: ``"job"``: what the job takes; ``"instance"``: its MIG instance; or what it does in
            that time.
        start: Left end, in GiB, SMs or a unit of time.
        end: Right end, in the same unit.
        end_low: Lower end of the interval of the right end; None: the right end is certain.
        end_high: Upper end of that interval.
        hint: Tooltip.
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
        rows: One for each job, or for several copies of it, in order, from the top.
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

    @property
    def used_gib(self) -> float:
        """The right end of everything that is drawn in the memory panel."""
        return max(bar.end if bar.end_high is None else bar.end_high for bar in self.memory)


def drawing(mix: MixPrediction, gpu: Gpu) -> Drawing:
    """The jobs of `mix` in `gpu`, to scale.

    Raises:
        NothingFits: A MIG instance has no place on `gpu`.
    """
    placed = _copies_together(mix.jobs, spots_of(mix, gpu))
    return Drawing(
        rows=tuple(each.row for each in placed),
        memory=(*_frames(placed, of_memory=True), *map(_memory_bar, placed)),
        sms=(*_frames(placed, of_memory=False), *map(_sm_bar, placed)),
        memory_gib=gpu.memory_mib / units.MIB_PER_GIB,
        sm_count=gpu.sms,
        caption=words_of(mix.sharing).caption,
    )


def row_name(first: int, job: str, copies: int = 1) -> str:
    """Name of the row of `copies` of `job`, the first of which has the number `first`."""
    if copies == 1:
        return f"{first} · {job}"
    return f"{first}-{first + copies - 1} · {job} x{copies}"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A job, or copies of it that are drawn as one.

    Attributes:
        first: Number of the first copy.
        at_once: Whether the copies hold memory at the same time, not one after another.
    """

    first: int
    job: JobPrediction
    spot: Spot
    copies: int = 1
    at_once: bool = False

    @property
    def row(self) -> str:
        return row_name(self.first, self.job.job, self.copies)

    @property
    def side_by_side(self) -> int:
        """Copies whose memory lies side by side."""
        return self.copies if self.at_once else 1

    def with_copy(self, job: JobPrediction, spot: Spot) -> "_Placed | None":
        """The same with one more copy; None where `job` is another one, or lies elsewhere."""
        alike = (job.job, job.memory_interval_mib) == (self.job.job, self.job.memory_interval_mib)
        if not alike or replace(spot, start_mib=self.spot.start_mib) != self.spot:
            return None
        after_mib = spot.start_mib - self.spot.start_mib
        at_once = isclose(after_mib, self.copies * job.memory_mib, rel_tol=1e-9)
        if not (at_once or after_mib == 0) or (self.copies > 1 and at_once != self.at_once):
            return None
        return replace(self, copies=self.copies + 1, at_once=at_once)


def _copies_together(jobs: Sequence[JobPrediction], spots: Sequence[Spot]) -> list[_Placed]:
    """The jobs in order, consecutive copies in the same place as one."""
    found: list[_Placed] = []
    for number, (job, spot) in enumerate(zip(jobs, spots, strict=True), start=1):
        more = found[-1].with_copy(job, spot) if found else None
        if more is not None:
            found[-1] = more
        else:
            found.append(_Placed(number, job, spot))
    return found


def _frames(placed: Sequence[_Placed], *, of_memory: bool) -> Iterator[Bar]:
    """Frames of the MIG instances in one panel; none without MIG."""
    for each in placed:
        if (cut := each.spot.cut) is None:
            continue
        start, length, size = cut.first_sm, cut.sms, 1.0
        if of_memory:
            start, length, size = cut.start_mib, cut.profile.memory_mib, units.MIB_PER_GIB
        yield Bar(
            row=each.row, job=each.job.job, kind="instance",
            start=start / size, end=(start + length) / size,
            hint=f"{cut.profile.name}: {cut.profile.memory_mib:,} MiB, {cut.sms:.0f} SMs",
        )  # fmt: skip


def _memory_bar(placed: _Placed) -> Bar:
    job, start_mib, each_mib = placed.job, placed.spot.start_mib, placed.job.memory_interval_mib
    range_mib = each_mib.scaled(placed.side_by_side)
    each = "takes" if placed.copies == 1 else "each takes"
    together = f", together {units.gib(range_mib)}" if placed.at_once else ""
    return Bar(
        row=placed.row,
        job=job.job,
        kind="job",
        start=start_mib / units.MIB_PER_GIB,
        end=(start_mib + placed.side_by_side * job.memory_mib) / units.MIB_PER_GIB,
        end_low=(start_mib + range_mib.p05) / units.MIB_PER_GIB,
        end_high=(start_mib + range_mib.p95) / units.MIB_PER_GIB,
        hint=f"{each} {units.gib(each_mib)}{together}",
    )


def _sm_bar(placed: _Placed) -> Bar:
    spot = placed.spot
    return Bar(
        row=placed.row, job=placed.job.job, kind="job", start=spot.first_sm, end=spot.end_sm,
        hint=spot.hint,
    )  # fmt: skip
