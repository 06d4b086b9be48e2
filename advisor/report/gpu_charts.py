"""A GPU as a plan divides it, drawn: the memory, SMs and MIG slices of each job."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import chain, pairwise
from math import ceil
from typing import Any, NamedTuple

import altair as alt

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import profile_of
from advisor.hardware.partition import limited_sms, place_compute
from advisor.prediction.memory import pools_of
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import MixPrediction
from advisor.report import format as units
from advisor.report.charts import Layered
from advisor.report.drawing import (
    FIT_WIDTH,
    FREE,
    LETTER_PX,
    LINE_PX,
    TEXT,
    Mark,
    by_job,
    chart_of,
    drawn_layers,
    mark_at,
    mark_layers,
    pixel_axis,
    words_at,
)
from advisor.sharing import Group, Hybrid, Instance, Part, Place
from advisor.sharing.groups import groups

_BAR_PX, _LIMIT_PX, _SLICE_PX, _BETWEEN_PX, _GAP_PX = 18, 14, 18, 3, 6
_LABELS_PX, _NARROW_PX = 56, 285  # widths of the labels, and of the drawing on a telephone
_SWATCH_PX = 30  # of a colour before its words, and what is free behind them
_EDGES = ("top", "bottom")

_ZOOMED_BELOW, _ZOOMED_TO = 0.15, 0.55  # shares of the bar that used memory takes
_BREAK = (0.62, 0.65)  # of a bar that is not to scale
_INDENT, _ROOM_FOR_WORDS = 0.01, 0.3  # shares of a bar, of which the free part has words


class _Held(NamedTuple):
    """The jobs, by position, that hold the memory of a GPU or an instance when it is fullest."""

    instance: Instance | None
    jobs: tuple[int, ...]
    held_mib: float
    capacity_mib: float


class _Block(NamedTuple):
    """A part of the drawing: marks, and labels left of it by their pixels from its top."""

    height_px: float
    marks: Sequence[Mark]
    labels: dict[float, str]


def gpu_chart(mix: MixPrediction, gpu: Gpu, jobs: Iterable[str] = ()) -> Layered:
    """Draw how `mix` divides `gpu`: memory of each job in GiB, SM limits, and MIG slices.

    Where jobs take turns, memory is that of the fullest moment. With MIG, each group of jobs has a
    drawing. The names of all `jobs` of the request, in order, fix the colours.
    """
    mix = replace(mix, sharing=placed(mix.sharing, gpu))
    stages = list(_fullest_moments(mix, gpu))
    orders = ["first", *["then"] * len(stages)] if len(stages) > 1 else [""]
    with_mig = any(isinstance(group, Hybrid) for group, _ in stages)
    fullest = max((held[0] for _, held in stages), key=_share)
    blocks = [] if with_mig else [_memory(mix, fullest, len(mix.jobs), "")]
    for order, (group, held) in zip(orders, stages, strict=False):
        if isinstance(group, Hybrid):
            blocks.append(_slices(mix, gpu, group, held, order))
            continue
        blocks += [_memory(mix, held[0], len(group.jobs), order)] if with_mig else []
        blocks += [_limits(mix, gpu, group, order)] if group.sharing.limits else []
    drawn = [each for _, held in stages for each in held] if with_mig else [fullest]
    marks, labels, top = _stacked(blocks)
    key, height_px = _key(mix, drawn, marks, top)
    colour = by_job([*jobs, *(each.job for each in mix.jobs)])
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None)
    y = pixel_axis(labels, height_px, minExtent=_LABELS_PX, maxExtent=_LABELS_PX)
    layers = [*mark_layers(marks, x, y, colour), *_key_layers(key, y, colour)]
    parts = chain.from_iterable(map(_in_words, blocks))
    return drawn_layers(layers, f"GPU {gpu.key}", parts, height_px, autosize=FIT_WIDTH)


def _in_words(block: _Block) -> Iterable[str]:
    """The facts that `block` shows, each once: its order, its words, and the jobs."""
    shown = [mark for mark in block.marks if mark["kind"] in ("job", "words")]
    words = [block.labels[LINE_PX / 2], *(mark.get("text") or mark["hint"] for mark in shown)]
    return filter(None, dict.fromkeys(words))


def _share(held: _Held) -> float:
    return held.held_mib / held.capacity_mib


def _fullest_moments(
    mix: MixPrediction, gpu: Gpu
) -> Iterator[tuple[Group | Hybrid, Sequence[_Held]]]:
    """Each group of jobs, and who holds the memory of the GPU or its instances at their fullest."""
    pools = iter(pools_of(mix, gpu))
    for group in groups(mix.sharing, len(mix.jobs)):
        moments: dict[Instance | None, list[_Held]] = {}
        for parts in group.memories:
            pool = next(pools)
            held_mib = {job: mix.jobs[job].memory_mib for job in pool.jobs}
            most = sorted(nlargest(pool.at_once, pool.jobs, key=held_mib.__getitem__))
            total_mib = sum(held_mib[job] for job in most)
            held = _Held(parts[0].instance, tuple(most), total_mib, pool.capacity_mib)
            moments.setdefault(held.instance, []).append(held)
        yield group, [max(each, key=_share) for each in moments.values()]


def _held_by_job(mix: MixPrediction, held: _Held) -> Iterator[tuple[str, float, str]]:
    """Yield name, memory and a hint of the jobs in memory; copies are one."""
    counts = Counter(mix.jobs[job].job for job in held.jobs)
    for name, count in counts.items():
        own_mib = sum(mix.jobs[job].memory_mib for job in held.jobs if mix.jobs[job].job == name)
        yield name, own_mib, f"{units.collapsed([name] * count)} holds {units.gib_of(own_mib)}"


def _memory(mix: MixPrediction, held: _Held, of_jobs: int, order: str) -> _Block:
    """The memory of the whole GPU, as a bar; not to scale where jobs take little of it."""
    capacity_mib, used_mib = held.capacity_mib, held.held_mib
    zoomed = 0 < used_mib < _ZOOMED_BELOW * capacity_mib
    scale = _ZOOMED_TO / used_mib if zoomed else 1 / max(used_mib, capacity_mib)
    marks, end = list[Mark](), 0.0
    for name, own_mib, hint in _held_by_job(mix, held):
        start, end = end, end + own_mib * scale
        marks.append(mark_at("job", start, end, LINE_PX, _BAR_PX, job=name, hint=hint))
    text = f"{used_mib / units.MIB_PER_GIB:.1f} of {capacity_mib / units.MIB_PER_GIB:.0f} GiB"
    if used_mib < capacity_mib:
        free = f"free {units.gib_of(capacity_mib - used_mib)}"
        ends = [(end, _BREAK[0]), (_BREAK[1], 1.0)] if zoomed else [(end, 1.0)]
        marks += [mark_at("free", *each, LINE_PX, _BAR_PX, hint=free) for each in ends]
        if ends[-1][1] - ends[-1][0] >= _ROOM_FOR_WORDS:
            marks.append(words_at(free, ends[-1][0] + _INDENT, LINE_PX + 1))
        else:
            text += f", {free}"
        if zoomed:
            marks.append(words_at("//", _BREAK[0], LINE_PX + 1) | {"kind": "break"})
    else:
        marks.append(mark_at("frame", 0.0, capacity_mib * scale, LINE_PX, _BAR_PX))
    text += ", at the fullest moment" if len(held.jobs) < of_jobs else ""
    marks.append(words_at(text, 0.0, 0.0))
    labels = {LINE_PX / 2: order, LINE_PX + _BAR_PX / 2: "memory"}
    return _Block(LINE_PX + _BAR_PX, marks, labels)


def _limits(mix: MixPrediction, gpu: Gpu, group: Group, order: str) -> _Block:
    """The SMs that each job may use, in rows from 0 to its limit; equal jobs share a row."""
    names = [mix.jobs[number - 1].job for number in group.jobs]
    marks = [words_at("SM limit of each job", 0.0, 0.0)]
    labels, top = {LINE_PX / 2: order}, float(LINE_PX)
    for (name, limit), count in Counter(zip(names, group.sharing.limits, strict=True)).items():
        sms, height_px = limited_sms(limit, gpu.sms), _LIMIT_PX - _BETWEEN_PX
        equal = units.collapsed([name] * count)
        hint = f"{equal}: at most {limit:g} % of the SMs, which is {sms} of {gpu.sms}"
        marks += [
            mark_at("free", limit / 100, 1.0, top, height_px, hint=hint),
            mark_at("job", 0.0, limit / 100, top, height_px, job=name, hint=hint),
        ]
        labels[top + height_px / 2] = f"{limit:g} %"
        top += _LIMIT_PX
    return _Block(top, marks, labels)


def _slices(
    mix: MixPrediction, gpu: Gpu, group: Hybrid, held: Sequence[_Held], order: str
) -> _Block:
    """The compute and memory slices of a GPU in boxes, and the jobs on its instances."""
    compute = max(row.compute_slices for row in gpu.mig)
    wide = max(1, gpu.memory_slices // compute)  # memory slices beside one compute slice
    slice_end = 1 / max(gpu.memory_slices, compute * wide)
    tops = (float(LINE_PX), float(LINE_PX + _SLICE_PX + _BETWEEN_PX))
    marks = list[Mark]()
    for top, count, size in zip(tops, (compute, gpu.memory_slices), (wide, 1), strict=True):
        boxes = _boxes(0.0, count * size * slice_end, size * slice_end)
        marks += [mark_at("free", *ends, top, _SLICE_PX, hint="free") for ends in boxes]
    for place, own in zip(group.places, held, strict=True):
        row, start = profile_of(gpu, place.instance.profile), place.instance.start or 0
        at, room = start * slice_end, row.memory_slices * slice_end
        marks += [
            words_at(_instance(place), at, 0.0, room=room, short=row.name.partition(".")[0]),
            mark_at("frame", at, at + room, tops[1], _SLICE_PX),
        ]
        end, per_mib = at, room / max(own.held_mib, own.capacity_mib)
        for name, own_mib, hint in _held_by_job(mix, own):
            begin, end = end, end + own_mib * per_mib
            of = f"{hint} of {units.gib_of(own.capacity_mib)} on {row.name}"
            for ends in _boxes(begin, end, slice_end):
                marks.append(mark_at("job", *ends, tops[1], _SLICE_PX, job=name, hint=of))
        sizes = [part.slices for part in place.parts if part.slices is not None]
        starts = place_compute(gpu, row.name, sizes) if sizes else (0,)
        for part, inside in zip(place.parts, starts, strict=True):
            first = start // wide + inside
            last = first + (part.slices or row.compute_slices)
            ends = (first * wide * slice_end, last * wide * slice_end)
            marks.append(mark_at("frame", *ends, tops[0], _SLICE_PX))
            where = f"{part.slices}c of {row.name}" if sizes else _instance(place)
            marks += _stripes(mix, part, where, ends, wide * slice_end, tops[0])
    middles = [LINE_PX / 2, *(top + _SLICE_PX / 2 for top in tops)]
    labels = dict(zip(middles, (order, "SMs", "memory"), strict=True))
    return _Block(tops[1] + _SLICE_PX, marks, labels)


def _boxes(start: float, end: float, size: float) -> Iterator[tuple[float, float]]:
    """Divide a bar where it crosses the edges of slices of a `size`."""
    first, last = round(start / size, 6), round(end / size, 6)
    edges = [first, *range(int(first) + 1, ceil(last)), last]
    return ((one * size, other * size) for one, other in pairwise(edges))


def _instance(place: Place) -> str:
    """Profile of an instance, and how it is divided or shared."""
    sizes = [f"{part.slices}c" for part in place.parts if part.slices is not None]
    if sizes:
        return f"{place.instance.profile}: {' + '.join(sizes)}"
    (part,) = place.parts
    if len(part.jobs) == 1:
        return place.instance.profile
    way = "in turn" if part.in_line else units.way_of(part.sharing, len(part.jobs))
    return f"{place.instance.profile}, {way}"


def _stripes(
    mix: MixPrediction, part: Part, where: str, ends: tuple[float, float], size: float, top: float
) -> Iterator[Mark]:
    """The jobs on the compute slices of `part`, one above the other; equal ones are one."""
    names = [mix.jobs[number - 1].job for number in part.jobs]
    limits = part.sharing.limits or [100.0] * len(names)
    equal = Counter(zip(names, limits, strict=True))
    height_px = _SLICE_PX / len(equal)
    for number, ((name, limit), count) in enumerate(equal.items()):
        of = f"{limit:g} % of the SMs of " if limit < 100 else ""
        hint = f"{units.collapsed([name] * count)} on {of}{where}"
        end = ends[0] + (ends[1] - ends[0]) * limit / 100
        for box in _boxes(ends[0], end, size):
            yield mark_at("job", *box, top + number * height_px, height_px, job=name, hint=hint)


def _stacked(blocks: Sequence[_Block]) -> tuple[list[Mark], dict[float, str], float]:
    """Marks and labels of `blocks` one below the other, and their height in pixels."""
    marks, labels, top = list[Mark](), dict[float, str](), 0.0
    for block in blocks:
        marks += (each | {edge: top + each[edge] for edge in _EDGES} for each in block.marks)
        labels |= {top + at: words for at, words in block.labels.items()}
        top += block.height_px + _GAP_PX
    return marks, labels, top


def _key(
    mix: MixPrediction, drawn: Sequence[_Held], marks: Sequence[Mark], top: float
) -> tuple[list[Mark], float]:
    """The meaning of the colours of `marks`, in lines below the drawing, and where these end.

    For a job it is its name, with the number of copies and the memory that they hold.
    """
    short = units.short_names(each.job for each in mix.jobs)
    coloured = {mark["job"] for mark in marks if mark["kind"] == "job"}
    in_memory = [mix.jobs[job] for held in drawn for job in held.jobs]
    key = list[Mark]()
    for name in (each for each in short if each in coloured):
        own_mib = [each.memory_mib for each in in_memory if each.job == name]
        words = units.collapsed([short[name]] * max(1, len(own_mib)))
        words += f" {units.gib_of(sum(own_mib))}" if sum(own_mib) else ""
        key.append({"kind": "job", "job": name, "text": words, "memory_mib": sum(own_mib)})
    if not any("free" in mark.get("text", "") for mark in marks):
        key.append({"kind": "free", "text": "free"})
    left = -float(_LABELS_PX)
    for entry in key:
        wide_px = _SWATCH_PX + LETTER_PX * len(entry["text"])
        if left > -_LABELS_PX and left + wide_px > _NARROW_PX:
            left, top = -float(_LABELS_PX), top + LINE_PX
        entry |= {"left": left, "top": top + LINE_PX / 2}
        left += wide_px
    return key, top + LINE_PX


def _key_layers(key: Sequence[Mark], y: alt.Y, colour: alt.Color) -> Iterator[alt.Chart]:
    square: dict[str, Any] = {"size": 100, "opacity": 1, "x": alt.ExprRef("datum.left + 6")}
    of_jobs, free = (
        chart_of(each for each in key if each["kind"] == kind) for kind in ("job", "free")
    )
    yield of_jobs.mark_square(**square).encode(y=y, color=colour)
    yield free.mark_square(color=FREE, **square).encode(y=y)
    words = {**TEXT, "x": alt.ExprRef("datum.left + 16"), "text": alt.ExprRef("datum.text")}
    yield chart_of(key).mark_text(**words).encode(y=y)
