"""Mixes drawn for the surrogate model to learn from."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from advisor.prediction.surrogate import MixBatch
from advisor.prediction.surrogate_features import LIMIT_GRID
from advisor.sharing import Concurrent, Mode, Mps, Naive

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
    """`lessons` mixes of 1 to 8 of `profiles` profiles, drawn with a fixed seed."""
    random = Random(_SEED)
    return [_drawn(random, profiles, modes) for _ in range(lessons)]


def _drawn(random: Random, profiles: int, modes: Sequence[Mode]) -> DrawnMix:
    degree = random.choices(list(_DEGREES), list(_DEGREES.values()))[0]
    jobs = random.sample(range(profiles), min(degree, profiles))
    if len(jobs) < degree or random.random() < _COPIES:
        jobs = [random.choice(jobs) for _ in range(degree)]
    mode = random.choices(modes, [MODES[each] for each in modes])[0]
    if mode == "naive":
        return DrawnMix(tuple(jobs), Naive())
    if mode == "mps":
        return DrawnMix(tuple(jobs), Mps())
    limits = [float(random.choice(LIMIT_GRID)) for _ in jobs]
    if random.random() < _EQUAL:
        limits = limits[:1] * degree
    return DrawnMix(tuple(jobs), Mps(tuple(limits)))


def batch_of(lessons: Sequence[DrawnMix]) -> MixBatch:
    """`lessons` as arrays, with a place for each job of the largest mix."""
    places = max(len(lesson.jobs) for lesson in lessons)
    jobs = np.full((len(lessons), places), -1, dtype=np.intp)
    limits = np.full((len(lessons), places), 100.0)
    for row, lesson in enumerate(lessons):
        jobs[row, : len(lesson.jobs)] = lesson.jobs
        if lesson.sharing.limits:
            limits[row, : len(lesson.jobs)] = lesson.sharing.limits
    return MixBatch(jobs, limits)
