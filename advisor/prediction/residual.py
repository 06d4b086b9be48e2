"""Steps of jobs in a mix by replay, corrected by the regression."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import at_once, one_thread
from advisor.prediction.correction import features, mates_spread, widened
from advisor.prediction.model import Model
from advisor.prediction.replay import (
    Effort,
    Physics,
    Replayed,
    combined_variants,
    replay_mix,
    replay_variants,
)
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mps
from advisor.workload.profile import Profile

# A short replay suffices to choose among mixes.
_TO_CHOOSE = Effort(events=4_000)

# `physics.replay_mix`, or what remembers its answers.
ReplayFunction = Callable[[Sequence[Profile], Concurrent, Gpu, Physics, Effort], Floats | None]


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs that share a GPU, and the positions of those to predict.

    Attributes:
        asked: Positions among `profiles`.
        effort: How long to replay.
    """

    profiles: tuple[Profile, ...]
    sharing: Concurrent
    asked: tuple[int, ...]
    effort: Effort = Effort()  # noqa: RUF009 - frozen


def by_replay(
    mixes: Sequence[Mix], gpu: Gpu, model: Model, play: ReplayFunction = replay_mix
) -> list[Floats] | None:
    """Seconds of a step of the jobs in `asked`: lower end, middle and upper end of 90 %.

    Args:
        mixes: At least one.
        gpu: The GPU that all share.
        model: Its physics and corrections by mode.
        play: Replays a mix.

    Returns:
        Of each mix, shape (3, asked); None without traces, or without a correction of a mode.
    """
    modes = [mix.sharing.mode for mix in mixes]
    found: dict[int, Floats] = {}
    for mode in dict.fromkeys(modes):
        chosen = [at for at, other in enumerate(modes) if other == mode]
        answers = _of_one_mode([mixes[at] for at in chosen], gpu, model, play)
        if answers is None:
            return None
        found |= zip(chosen, answers, strict=True)
    return [found[at] for at in range(len(mixes))]


def _of_one_mode(
    mixes: Sequence[Mix], gpu: Gpu, model: Model, play: ReplayFunction
) -> list[Floats] | None:
    sharing = mixes[0].sharing
    correction = model.corrections.get(sharing.mode)
    replays = _replays(mixes, gpu, model.of(gpu).physics, play)
    if correction is None or replays is None:
        return None
    pairs = list(zip(mixes, replays, strict=True))
    rows = [features(mix.profiles, mix.sharing, gpu, replayed) for mix, replayed in pairs]
    asked = np.concatenate([x[list(mix.asked)] for x, mix in zip(rows, mixes, strict=True)])
    jobs = [mix.profiles[at] for mix in mixes for at in mix.asked]
    replayed_s = np.concatenate([replayed.steps_s[list(mix.asked)] for mix, replayed in pairs])
    with one_thread():
        near, alone_s = correction.near(asked), np.array([each.step_s for each in jobs])
        middle = corrected(replayed_s, correction.log_correction(near), alone_s)
        low, high = correction.log_bounds(jobs, near, middle)
        if sharing.mode == "naive":
            of_mates = [
                mates_spread(mix.profiles, replayed.steps_s)[list(mix.asked)]
                for mix, replayed in pairs
            ]
            low, high = widened(low, high, np.concatenate(of_mates))
    ends = np.cumsum([len(mix.asked) for mix in mixes])[:-1]
    return np.split(np.array([middle * np.exp(low), middle, middle * np.exp(high)]), ends, axis=1)


def _replays(
    mixes: Sequence[Mix], gpu: Gpu, physics: Physics, play: ReplayFunction
) -> list[Replayed] | None:
    """All replays of all mixes, in parallel."""
    parts = [(mix, replay_variants(mix.sharing, physics, mix.effort)) for mix in mixes]
    steps = iter(at_once(
        lambda each: play(each[0].profiles, each[0].sharing, gpu, *each[1]),
        [(mix, way) for mix, some in parts for way in some],
    ))  # fmt: skip
    found = [combined_variants([next(steps) for _ in some]) for _, some in parts]
    replays = [each for each in found if each is not None]
    return replays if len(replays) == len(found) else None


def brief_steps(
    profiles: Sequence[Profile], sharings: Sequence[Mps], gpu: Gpu, model: Model
) -> Floats:
    """Seconds of a step of each job by a short replay, shape (sharings, jobs).

    Corrected without uncertainty of the constants; for choosing what to predict.

    Args:
        profiles: Profiles with traces.
        sharings: Sharings with limits.
        gpu: The GPU that they share.
        model: With a correction of limits.
    """
    replays = at_once(
        lambda each: replay_mix(profiles, each, gpu, model.of(gpu).physics, _TO_CHOOSE), sharings
    )
    correction, found = model.corrections["mps-limits"], []
    alone_s = np.array([each.step_s for each in profiles])
    with one_thread():
        for sharing, replayed_s in zip(sharings, replays, strict=True):
            assert replayed_s is not None, "only profiles with traces are estimated"
            rows = features(profiles, sharing, gpu, Replayed(*[replayed_s] * 3))
            log_correction = correction.log_correction(correction.near(rows))
            found.append(corrected(replayed_s, log_correction, alone_s))
    return np.array(found)


def corrected(replayed_s: Floats, log_correction: Floats, alone_s: Floats) -> Floats:
    """Replayed steps times their correction; no job gets faster by sharing, shape (jobs,)."""
    return np.asarray(np.maximum(replayed_s * np.exp(log_correction), alone_s))
