"""Fits the surrogate model to the predictor's answers, on mixes drawn by a seed."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import answer_all, in_processes
from advisor.prediction.mix_steps import alone_s, steps_together
from advisor.prediction.model import Model
from advisor.prediction.replay import replay_mix
from advisor.prediction.surrogate import (
    COLUMNS,
    LENGTHS,
    LIMIT_GRID,
    LIMITED,
    MixBatch,
    Summaries,
    Surrogate,
    SurrogateModel,
    columns,
    joined,
    likeness,
    summaries,
)
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Concurrent, Mode, Mps, Naive
from advisor.workload.profile import Profile

_SEED = 20261121
_DEGREES = {1: 3, 2: 22, 3: 20, 4: 17, 5: 14, 6: 10, 7: 8, 8: 6}

MODES: dict[Mode, int] = {"naive": 20, "mps": 25, "mps-limits": 55}
_COPIES = 0.2  # share of mixes in which a workload may come more than once

_EQUAL = 0.25  # share of the mixes with limits in which all have the same


Lesson = tuple[tuple[int, ...], Concurrent]
"""A mix for fitting the surrogate: indices of the profiles, and how they share."""


def draw(lessons: int, profiles: int, modes: Sequence[Mode]) -> list[Lesson]:
    """Draw `lessons` mixes of 1 to 8 of `profiles` profiles, with a fixed seed."""
    random = Random(_SEED)
    mixes = []
    for _ in range(lessons):
        degree = random.choices(list(_DEGREES), list(_DEGREES.values()))[0]
        jobs = random.sample(range(profiles), min(degree, profiles))
        if len(jobs) < degree or random.random() < _COPIES:
            jobs = [random.choice(jobs) for _ in range(degree)]
        mode = random.choices(modes, [MODES[each] for each in modes])[0]
        sharing: Concurrent = Naive() if mode == "naive" else Mps()
        if mode == "mps-limits":
            limits = [float(random.choice(LIMIT_GRID)) for _ in jobs]
            if random.random() < _EQUAL:
                limits = limits[:1] * degree
            sharing = Mps(tuple(limits))
        mixes.append((tuple(jobs), sharing))
    return mixes


# Number of mixes that the predictor answers for: some 10 ms each.
LESSONS = 800

# With fewer mixes than this, processes take longer to start than they save.
_WORTH_SPREADING = 300

# Found by trying, on mixes drawn by another seed. With less of `_SURE` the weights of points that
# are close together grow, and with them the effect of a rounding error on the model.
_POINTS = 256
_NOISE = 0.003
_SURE = 3e-5

# A column that differs by less than this, over its largest number, differs by rounding alone.
_SAME = 1e-9


def with_surrogate(
    model: Model,
    profiles: Mapping[Gpu, Sequence[Profile]],
    lessons: int = LESSONS,
    processes: int = 1,
) -> Model:
    """Return `model` with a surrogate model fitted to its answers.

    Profiles with trace and counters are mixed with others of the same GPU. Each GPU gets equally
    many of the mixes; the result does not depend on the number of processes.
    """
    usable = {}
    for gpu, every in profiles.items():
        physics = model.of(gpu).physics
        some = [each for each in every if summaries([each], gpu, physics) is not None]
        seen = summaries(some, gpu, physics)
        if len(some) > 1 and seen is not None:
            usable[gpu] = some, seen
    modes = sorted(model.intervals.keys() & SHARED_MODES)
    if not usable or not modes:
        return model
    parts, first = list[Summaries](), 0
    of_mode = defaultdict[Mode, list[tuple[Lesson, Floats]]](list)
    for gpu, (some, seen) in usable.items():
        drawn = draw(lessons // len(usable), len(some), modes)
        answer = partial(_answers, some, gpu, model)
        for (places, sharing), steps_s in _answered(drawn, answer, processes):
            mix = tuple(first + place for place in places), sharing
            of_mode[sharing.mode].append((mix, steps_s))
        parts.append(seen)
        first += len(some)
    jobs, surrogates = joined(parts), {}
    for mode, answered in sorted(of_mode.items()):
        batch = _batch_of([mix for mix, _ in answered])
        taken = batch.jobs >= 0
        steps_s = np.concatenate([steps_s for _, steps_s in answered])
        y = np.log(steps_s / jobs.step_s[batch.jobs[taken]])
        surrogates[mode] = fit_surrogate(columns(jobs, batch)[taken], y, mode)
    return replace(model, distilled=SurrogateModel(surrogates=surrogates))


def _batch_of(lessons: Sequence[Lesson]) -> MixBatch:
    """`lessons` as arrays, with a place for each job of the largest mix."""
    places = max(len(jobs) for jobs, _ in lessons)
    jobs = np.full((len(lessons), places), -1, dtype=np.intp)
    limits = np.full((len(lessons), places), 100.0)
    for row, (mixed, sharing) in enumerate(lessons):
        jobs[row, : len(mixed)] = mixed
        if sharing.limits:
            limits[row, : len(mixed)] = sharing.limits
    return MixBatch(jobs, limits)


def fit_surrogate(x: Floats, y: Floats, mode: Mode) -> Surrogate:
    """Fit the surrogate of `mode` to `y`, shape (rows,), at `x`, shape (rows, columns).

    In closed form, so that the result is the same on every machine.
    """
    from scipy.linalg import solve

    deviation = x.std(axis=0)
    differs = deviation > _SAME * np.abs(x).max(axis=0)
    scale = np.where(differs, deviation, 1.0) * np.array([LENGTHS[each][mode] for each in COLUMNS])
    rounded = np.round(x / scale, 4)
    # Evenly spaced distinct rows, in order.
    firsts = np.sort(np.unique(rounded, axis=0, return_index=True)[1])
    evenly = np.linspace(0, len(firsts) - 1, min(_POINTS, len(firsts))).astype(int)
    points = rounded[firsts[evenly]]
    near, among = _likeness(x / scale, points), _likeness(points, points)
    squared = near.T @ near + _NOISE * among + _SURE * np.eye(len(points))
    weights = solve(squared, near.T @ (y - y.mean()), assume_a="pos")
    return Surrogate(
        columns=COLUMNS,
        scale=tuple(map(float, scale)),
        points=tuple(tuple(map(float, point)) for point in points),
        weights=tuple(map(float, weights)),
        middle=float(y.mean()),
    )


def _likeness(rows: Floats, points: Floats) -> Floats:
    """Likeness of rows and points over all columns, shape (rows, points)."""
    others, own = slice(-len(LIMITED)), slice(-len(LIMITED), None)
    return likeness(rows[:, others], points[:, others]) * likeness(rows[:, own], points[:, own])


def _answered(
    lessons: Sequence[Lesson], answer: Callable[[Sequence[Lesson]], list[Floats]], processes: int
) -> list[tuple[Lesson, Floats]]:
    """`lessons` with their answers, made in several processes if they are many."""
    if processes == 1 or len(lessons) < _WORTH_SPREADING:
        return list(zip(lessons, answer(lessons), strict=True))
    parts = [lessons[first::processes] for first in range(processes)]
    answers = [np.zeros(0)] * len(lessons)
    with in_processes(answer, parts, processes) as answered:
        for first, part in enumerate(answered):
            answers[first::processes] = part
    return list(zip(lessons, answers, strict=True))


def _answers(
    profiles: Sequence[Profile], gpu: Gpu, model: Model, lessons: Sequence[Lesson]
) -> list[Floats]:
    """Seconds of a step of each lesson's jobs, replayed and corrected, shape (jobs,)."""

    def steps_s(lesson: Lesson) -> Floats:
        places, sharing = lesson
        jobs = [profiles[place] for place in places]
        if len(jobs) == 1:
            return np.array([alone_s(jobs[0], sharing, gpu, model, replay_mix)])
        steps = steps_together(jobs, sharing, gpu, model)
        assert steps is not None, "modes that were learnt teach, and jobs with traces"
        return np.asarray(steps[1])

    return answer_all(steps_s, lessons)
