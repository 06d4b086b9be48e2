"""Fits the surrogate model to the predictor's answers, on mixes drawn by a seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import fitting_in_one_thread, in_processes
from advisor.prediction.mix_steps import Mix, ReplayFunction, by_replay
from advisor.prediction.model import Model
from advisor.prediction.predictor import alone_s
from advisor.prediction.replay import replay_mix
from advisor.prediction.surrogate import (
    COLUMNS,
    LENGTHS,
    LIMIT_GRID,
    LIMITED,
    MixBatch,
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


@dataclass(frozen=True, slots=True)
class DrawnMix:
    """A mix for fitting the surrogate: indices of the profiles, and how they share."""

    jobs: tuple[int, ...]
    sharing: Concurrent


def draw(lessons: int, profiles: int, modes: Sequence[Mode]) -> list[DrawnMix]:
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
        mixes.append(DrawnMix(tuple(jobs), sharing))
    return mixes


def batch_of(lessons: Sequence[DrawnMix]) -> MixBatch:
    """Return `lessons` as arrays, with a place for each job of the largest mix."""
    places = max(len(lesson.jobs) for lesson in lessons)
    jobs = np.full((len(lessons), places), -1, dtype=np.intp)
    limits = np.full((len(lessons), places), 100.0)
    for row, lesson in enumerate(lessons):
        jobs[row, : len(lesson.jobs)] = lesson.jobs
        if lesson.sharing.limits:
            limits[row, : len(lesson.jobs)] = lesson.sharing.limits
    return MixBatch(jobs, limits)


# Number of mixes that the predictor answers for: some 10 ms each.
LESSONS = 800

# The mode whose answers depend on the surrogate model; see `own_limit`.
_PREDICTED: Mode = "mps-limits"

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
    usable = {gpu: _usable(model, some, gpu) for gpu, some in profiles.items()}
    usable = {gpu: some for gpu, some in usable.items() if len(some) > 1}
    if not usable or not model.corrections:
        return model
    modes = sorted(model.corrections.keys() & SHARED_MODES)
    taught = []
    for gpu, some in usable.items():
        drawn = draw(lessons // len(usable), len(some), modes)
        answer = partial(_answers, some, gpu, model, replay_mix)
        taught.append(_Lessons(some, gpu, drawn, _in_parts(drawn, answer, processes)))
    return _taught(model, taught)


def _usable(model: Model, profiles: Sequence[Profile], gpu: Gpu) -> list[Profile]:
    """Those of `profiles` that have what the surrogate model sees of a job."""
    physics = model.of(gpu).physics
    return [each for each in profiles if summaries([each], gpu, physics) is not None]


def with_surrogate_without(
    family: str, model: Model, profiles: Sequence[Profile], gpu: Gpu, play: ReplayFunction
) -> Model:
    """Fit as `with_surrogate`, for modes that predictions use, without mixes with a `family` job.

    `profiles` are all, so that the same mixes are drawn for every family left out.
    """
    usable = _usable(model, profiles, gpu)
    if len(usable) < 2 or _PREDICTED not in model.corrections:
        return model
    drawn = [
        lesson
        for lesson in draw(LESSONS, len(usable), sorted(MODES))
        if lesson.sharing.mode == _PREDICTED
        and all(usable[job].workload.family != family for job in lesson.jobs)
    ]
    answers = _answers(usable, gpu, model, play, drawn)
    return _taught(model, [_Lessons(usable, gpu, drawn, answers)])


@dataclass(frozen=True, slots=True)
class _Lessons:
    """Mixes of profiles of one GPU, with the model's answers."""

    profiles: Sequence[Profile]
    gpu: Gpu
    drawn: Sequence[DrawnMix]
    answers: Sequence[Floats]


def _taught(model: Model, lessons: Sequence[_Lessons]) -> Model:
    """`model` with a surrogate for each mode among `lessons`."""
    seen = [summaries(each.profiles, each.gpu, model.of(each.gpu).physics) for each in lessons]
    jobs = joined([each for each in seen if each is not None])
    firsts = np.cumsum([0, *(len(each.profiles) for each in lessons)])
    drawn = [
        (replace(mix, jobs=tuple(int(first) + job for job in mix.jobs)), steps_s)
        for first, each in zip(firsts, lessons, strict=False)
        for mix, steps_s in zip(each.drawn, each.answers, strict=True)
    ]
    surrogates = {}
    for mode in sorted({mix.sharing.mode for mix, _ in drawn}):
        of_mode = [(mix, steps_s) for mix, steps_s in drawn if mix.sharing.mode == mode]
        crowds = batch_of([lesson for lesson, _ in of_mode])
        taken = crowds.jobs >= 0
        steps_s = np.concatenate([steps_s for _, steps_s in of_mode])
        y = np.log(steps_s / jobs.step_s[crowds.jobs[taken]])
        surrogates[mode] = fit_surrogate(columns(jobs, crowds)[taken], y, mode)
    return replace(model, distilled=SurrogateModel(surrogates=surrogates))


def fit_surrogate(x: Floats, y: Floats, mode: Mode) -> Surrogate:
    """Fit the surrogate of `mode` to `y`, shape (rows,), at `x`, shape (rows, columns).

    In closed form, so that the result is the same on every machine.
    """
    from scipy.linalg import solve

    deviation = x.std(axis=0)
    differs = deviation > _SAME * np.abs(x).max(axis=0)
    scale = np.where(differs, deviation, 1.0) * np.array([LENGTHS[each][mode] for each in COLUMNS])
    points = _spread(np.round(x / scale, 4))
    with fitting_in_one_thread():
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
    own = slice(-len(LIMITED), None)
    others = slice(-len(LIMITED))
    return likeness(rows[:, others], points[:, others]) * likeness(rows[:, own], points[:, own])


def _spread(rows: Floats) -> Floats:
    """Evenly spaced distinct `rows`, in order, shape (points, columns)."""
    firsts = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    return np.asarray(
        rows[firsts[np.linspace(0, len(firsts) - 1, min(_POINTS, len(firsts))).astype(int)]]
    )


def _in_parts(
    lessons: Sequence[DrawnMix], answer: Callable[[Sequence[DrawnMix]], list[Floats]],
    processes: int,
) -> list[Floats]:  # fmt: skip
    """The answers for `lessons`, in several processes."""
    if processes == 1 or len(lessons) < _WORTH_SPREADING:
        return answer(lessons)
    parts = [lessons[first::processes] for first in range(processes)]
    answers: list[Floats] = [np.zeros(0)] * len(lessons)
    with in_processes(answer, parts, processes) as answered:
        for first, part in enumerate(answered):
            answers[first::processes] = part
    return answers


def _answers(
    profiles: Sequence[Profile],
    gpu: Gpu,
    model: Model,
    play: ReplayFunction,
    lessons: Sequence[DrawnMix],
) -> list[Floats]:
    """Seconds of a step of each lesson's jobs, replayed and corrected, shape (jobs,)."""
    mixed = [tuple(profiles[job] for job in lesson.jobs) for lesson in lessons]
    answers: dict[int, Floats] = {}
    for mode in {lesson.sharing.mode for lesson in lessons}:
        some = [at for at, lesson in enumerate(lessons)
                if lesson.sharing.mode == mode and len(lesson.jobs) > 1]  # fmt: skip
        mixes = [Mix(mixed[at], lessons[at].sharing, tuple(range(len(mixed[at])))) for at in some]
        steps = by_replay(mixes, gpu, model, play) if mixes else []
        assert steps is not None, "modes with a correction teach, and jobs with traces"
        answers |= zip(some, (middle for _, middle, _ in steps), strict=True)
    for at, lesson in enumerate(lessons):
        if len(lesson.jobs) == 1:
            step_s = alone_s(mixed[at][0], lesson.sharing, gpu, model, play)
            answers[at] = np.array([step_s])
    return [answers[at] for at in range(len(lessons))]
