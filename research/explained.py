"""Draws the pictures of docs/explained.md and writes its numbers.

    python -m research.explained

Two made-up jobs share a GPU in the replay that predictions use. The numbers are those of job sets
that ran in all three ways without MIG.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from advisor.files.writing import write_whole
from advisor.prediction.prediction import all_known
from advisor.prediction.replay import PHYSICS, Effort, replay_mps, replay_naive
from advisor.prediction.trace import ReplayTrace
from advisor.sharing import SHARED_MODES, Sharing, parse_sharing
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.files import PROFILES, ROOT, filled, measured
from research.score_tables import markdown

GPU = "h200-141gb"
PAGE = ROOT / "docs" / "explained.md"
# Largest share of a step in which the GPU is busy alone, mean over the jobs of a set.
_BUSY = {"up to 60 %": 0.6, "60 to 90 %": 0.9, "above 90 %": 1.0}


def throughputs(
    profiles: Mapping[str, Profile], runs: Sequence[Run]
) -> dict[tuple[str, ...], dict[Sharing, float]]:
    """Return the mean throughput of each job set in each way: solo over shared step, summed."""
    sets: dict[tuple[str, ...], dict[Sharing, list[float]]] = defaultdict(dict)
    for run in runs:
        if len(run.tenants) > 1 and run.shows_pace and profiles.keys() >= {*run.names}:
            paces = [profiles[each.workload.name].step_s / each.step_s for each in run.tenants]
            sets[run.names].setdefault(parse_sharing(run.sharing), []).append(sum(paces))
    return {
        names: {way: mean(values) for way, values in ways.items()} for names, ways in sets.items()
    }


def wins_text(profiles: Mapping[str, Profile], runs: Sequence[Run]) -> str:
    """Return the table of what each way gains, by how busy the jobs keep the GPU alone."""
    best: dict[str, list[list[float]]] = defaultdict(list)
    for names, ways in throughputs(profiles, runs).items():
        shares = all_known(profiles[name].busy_share for name in names)
        by_mode = {
            mode: max(of_mode)
            for mode in SHARED_MODES
            if (of_mode := [value for way, value in ways.items() if way.mode == mode])
        }
        if shares is not None and len(by_mode) == len(SHARED_MODES):
            busy = next(words for words, most in _BUSY.items() if mean(shares) <= most)
            best[busy].append([*by_mode.values()])
    rows = [
        (
            words,
            str(len(best[words])),
            *(f"{mean(column):.2f}x" for column in zip(*best[words], strict=True)),
        )
        for words in _BUSY
    ]
    count = sum(len(sets) for sets in best.values())
    return (
        f"We ran {count} sets of 2 to 8 jobs on an H200 in all ways but MIG. The table shows their "
        "throughput: step times alone over step times together, summed. One after another is "
        "1.00x. With SM limits it is that of the best limits that ran.\n\n"
        + markdown(
            ("GPU busy, alone", "job sets", "time-slicing", "MPS", "MPS with SM limits"), rows
        )
    )


_WINDOW_MS = 20.0
_JOBS = ("job A", "job B")
_COLOURS = ("#2f6fde", "#e07b00")
_LIMITS = (0.6, 0.4)
# Of the 108 SMs of an A100: those of a 4g and a 3g instance.
_INSTANCES = (56 / 108, 42 / 108)
_CARD, _TEXT, _FRAME = "#f7f8fb", "#1f2430", "#5b6475"


def _trace(kernels: Sequence[tuple[float, float, float]], host_ms: float) -> ReplayTrace:
    """Return a step of kernels, each with its launch and duration in ms and its share of SMs."""
    launch, duration, demand = (np.array(column) for column in zip(*kernels, strict=True))
    return ReplayTrace(
        launch_s=launch / 1e3,
        duration_s=duration / 1e3,
        demand=demand,
        waves=demand,
        host_s=host_ms / 1e3,
        gap_s=0.0,
        lead_s=host_ms / 1e3,
        waits_s=np.full(len(kernels), np.inf),
        in_turns=np.ones(len(kernels)),
        place=np.arange(len(kernels)),
    )


# A step of each made-up job.
_STEPS = (
    _trace([(0.0, 1.6, 0.95), (0.1, 1.2, 0.6), (0.2, 1.4, 0.75)], 4.2),
    _trace([(0.0, 0.9, 0.3), (1.2, 0.7, 0.45)], 3.4),
)


def kernels_of(limits: Sequence[float] | None, steps: Sequence[ReplayTrace] = _STEPS) -> Any:
    """Return what runs in the window, shape (kernels, 4): job, kernel, start and end in ms.

    Without `limits`, under time-slicing.
    """
    log, effort = np.full((400, 4), -1.0), Effort(steps=40, events=800)
    if limits is None:
        replay_naive(steps, PHYSICS.slicing, effort, log=log)
    else:
        replay_mps(steps, limits, [1.0] * len(steps), PHYSICS.ceded, effort, log=log)
    log[:, 2:] *= 1e3
    return log[(log[:, 0] >= 0) & (log[:, 2] < _WINDOW_MS)]


@dataclass(frozen=True, slots=True)
class Picture:
    """A way to share, drawn: what runs, the most that each job may use, and walls around parts.

    Attributes:
        walls: Ends of the parts of the GPU, with the job in each; none: one part for all jobs.
        caps: Largest shares of SMs that are drawn as lines.
    """

    name: str
    kernels: Any
    most: tuple[float, float] = (1.0, 1.0)
    walls: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    caps: bool = False


def pictures() -> tuple[Picture, ...]:
    """Return the four pictures of the page."""
    alone = [kernels_of([share], [step]) for share, step in zip(_INSTANCES, _STEPS, strict=True)]
    alone[1][:, 0] = 1
    walls = ((0.0, _INSTANCES[0]), (_INSTANCES[0], sum(_INSTANCES)))
    return (
        Picture("time-slicing", kernels_of(None)),
        Picture("mps", kernels_of((1.0, 1.0))),
        Picture("limits", kernels_of(_LIMITS), _LIMITS, caps=True),
        Picture("mig", np.concatenate(alone), _INSTANCES, walls),
    )


def bars(picture: Picture) -> list[dict[str, Any]]:
    """Return the bars of kernels, cut where their heights change: A from below, B from above."""
    kernels, ceiling = picture.kernels, picture.walls[-1][1]
    rows: list[dict[str, Any]] = []
    for start, end in pairwise(np.unique(np.minimum(kernels[:, 2:], _WINDOW_MS)).tolist()):
        running = kernels[(kernels[:, 2] <= start) & (kernels[:, 3] >= end)].tolist()
        shares = [
            min(float(_STEPS[int(job)].demand[int(kernel)]), picture.most[int(job)])
            for job, kernel, *_ in running
        ]
        for (job, *_), share in zip(running, shares, strict=True):
            height = share / max(1.0, sum(shares))
            low = 0.0 if job == 0 else ceiling - height
            bar = {"job": _JOBS[int(job)], "low": low, "high": low + height, "end": start}
            before = next((row for row in rows if bar.items() <= row.items()), None)
            if before is None:
                rows.append(bar | {"start": start, "end": end})
            else:
                before["end"] = end
    return rows


def chart(picture: Picture) -> Any:
    """Draw SMs over time, and memory on the right."""
    alone = len(picture.walls) == 1
    held = ((0.0, 0.35), (0.35, 0.55)) if alone else ((0.0, 0.35), (0.5, 0.7))
    memory = [
        {"job": job, "start": 0.0, "end": 1.0, "low": low, "high": high}
        for job, (low, high) in zip(_JOBS, held, strict=True)
    ]
    time = alt.Axis(title="milliseconds", values=[0, 5, 10, 15, 20], grid=False)
    sms = _panel(bars(picture), picture.walls, time, _WINDOW_MS)
    halves = picture.walls if alone else ((0.0, 0.5), (0.5, 1.0))
    caps = alt.InlineData(values=[{"low": picture.most[0]}] if picture.caps else [])
    line = (
        alt.Chart(caps).mark_rule(color=_TEXT, strokeDash=[5, 4], strokeWidth=2).encode(y="low:Q")
    )
    return (
        alt.hconcat(
            (sms + line).properties(width=300, height=150, title="SMs in use"),
            _panel(memory, halves, None, 1.0).properties(width=60, height=150, title="memory"),
            spacing=18,
        )
        .configure(background=_CARD, padding=12)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_TEXT,
            titleColor=_TEXT,
            tickColor=_FRAME,
            labelFontSize=13,
            titleFontSize=13,
            titleFontWeight="normal",
            domain=False,
            grid=False,
        )
        .configure_title(color=_TEXT, fontSize=14, fontWeight="normal", anchor="start")
        .configure_legend(labelColor=_TEXT, labelFontSize=14, orient="bottom", title=None)
    )


def _panel(
    rows: Sequence[Mapping[str, Any]],
    walls: Sequence[tuple[float, float]],
    across: alt.Axis | None,
    width: float,
) -> Any:
    x = alt.X("start:Q", axis=across).scale(domain=(0, width))
    y = alt.Y("low:Q", axis=alt.Axis(title=None, format="%", values=[0, 0.5, 1]))
    ends = {"x": x, "x2": "end:Q", "y": y.scale(domain=(0, 1)), "y2": "high:Q"}
    colour = alt.Color("job:N").scale(domain=_JOBS, range=_COLOURS)
    frames = [{"start": 0.0, "end": width, "low": low, "high": high} for low, high in walls]
    jobs = alt.Chart(alt.InlineData(values=list(rows))).mark_rect(stroke=_CARD, strokeWidth=0.5)
    frame = alt.Chart(alt.InlineData(values=frames)).mark_rect(
        filled=False, stroke=_FRAME, strokeWidth=2
    )
    return jobs.encode(color=colour, **ends) + frame.encode(**ends)


if __name__ == "__main__":
    write_whole(PAGE, filled(PAGE.read_text(), "wins", wins_text(*measured(PROFILES / GPU))))
    for picture in pictures():
        file = PAGE.with_name(f"{PAGE.stem}-{picture.name}.svg")
        write_whole(file, vl_convert.vegalite_to_svg(chart(picture).to_json()))
