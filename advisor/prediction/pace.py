"""How long a step of each job takes in a mix, with intervals."""

from collections.abc import Sequence

import numpy as np

from advisor.gpu.catalogue import Gpu
from advisor.prediction.answer import Interval
from advisor.prediction.at_once import at_once
from advisor.prediction.capacity import capacity_steps
from advisor.prediction.features import features
from advisor.prediction.instances import on_instances
from advisor.prediction.model import Model, mode_of
from advisor.prediction.one_thread import one_thread
from advisor.prediction.plain import columns, seen_by_driver
from advisor.prediction.rehearsal import Replayed, rehearse, with_doubts
from advisor.prediction.replay import Effort
from advisor.prediction.script import Floats
from advisor.sharing import Arrangement, Hybrid, Mig, Mps, Naive, Serial, one_job_each
from advisor.workload.profile import Profile

# Which of several is best shows in a small part of a replay; see `benchmarks/distilled_regret.py`.
_TO_CHOOSE = Effort(events=4_000)


def step_intervals(
    profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu, model: Model
) -> list[Interval]:
    """Seconds of a step of each job, in the jobs' order."""
    match sharing:
        case Serial():
            return [_around(each.step_s, model.alone.spread(each)) for each in profiles]
        case Mig(instances):
            return on_instances(profiles, one_job_each(instances), gpu, model.physics)
        case Hybrid():
            return on_instances(profiles, sharing, gpu, model.physics)
        case Naive() | Mps() if len(profiles) == 1:
            left = profiles[0]
            return [_around(_alone_s(left, sharing, gpu, model), model.alone.spread(left))]
        case Naive() | Mps():
            return _shared(profiles, sharing, gpu, model)


def _alone_s(profile: Profile, sharing: Naive | Mps, gpu: Gpu, model: Model) -> float:
    """Seconds of a step of a job whose mates have left: as replayed, for nobody disturbs it."""
    replayed = rehearse([profile], sharing, gpu, model.physics)
    if replayed is not None:
        return float(replayed[0])
    steps = capacity_steps([profile], sharing)
    return profile.step_s if steps is None else steps[0]


def _shared(
    profiles: Sequence[Profile], sharing: Naive | Mps, gpu: Gpu, model: Model
) -> list[Interval]:
    replayed = with_doubts(
        lambda physics, effort: rehearse(profiles, sharing, gpu, physics, effort),
        sharing,
        model.physics,
    )
    correction = model.corrections.get(mode_of(sharing))
    if replayed is None or correction is None:
        return _by_capacity(profiles, sharing, gpu, model)
    rows = features(profiles, sharing, gpu, replayed)
    alone_s = np.array([each.step_s for each in profiles])
    with one_thread():
        middle = corrected(replayed.steps_s, correction.log_correction(rows), alone_s)
        low, high = correction.log_bounds(profiles, rows)
    ends = zip(middle * np.exp(low), middle, middle * np.exp(high), strict=True)
    return [Interval(*map(float, each)) for each in ends]


def brief_steps(
    profiles: Sequence[Profile], sharings: Sequence[Mps], gpu: Gpu, model: Model
) -> Floats:
    """Seconds of a step of each job by a short replay, shape (sharings, jobs).

    Corrected as if the physics were certain; for choosing what `step_intervals` is asked of.

    Args:
        profiles: With traces.
        sharings: All with limits.
        gpu: Theirs.
        model: With a correction of limits.
    """
    replays = at_once(
        lambda each: rehearse(profiles, each, gpu, model.physics, _TO_CHOOSE), sharings
    )
    correction, found = model.corrections["mps-limits"], []
    alone_s = np.array([each.step_s for each in profiles])
    with one_thread():
        for sharing, replayed_s in zip(sharings, replays, strict=True):
            assert replayed_s is not None, "rough answers are of profiles that have traces"
            rows = features(profiles, sharing, gpu, Replayed(replayed_s, replayed_s, replayed_s))
            found.append(corrected(replayed_s, correction.log_correction(rows), alone_s))
    return np.array(found)


def corrected(replayed_s: Floats, log_correction: Floats, alone_s: Floats) -> Floats:
    """Replayed steps times their correction; no job gets faster by sharing, shape (jobs,)."""
    return np.asarray(np.maximum(replayed_s * np.exp(log_correction), alone_s))


def _by_capacity(
    profiles: Sequence[Profile], sharing: Naive | Mps, gpu: Gpu, model: Model
) -> list[Interval]:
    """From what nvidia-smi shows, for all jobs alike, since one of them has no more to tell."""
    bare = [seen_by_driver(each) for each in profiles]
    steps, plain = capacity_steps(bare, sharing), model.capacity.get(mode_of(sharing))
    if steps is None or plain is None:
        # Nothing says how busy the GPU is: between no loss and strict turns.
        turns = len(profiles)
        return [
            Interval(each.step_s, each.step_s * (1 + turns) / 2, each.step_s * turns)
            for each in profiles
        ]
    capacity_s, alone_s = np.array(steps), np.array([each.step_s for each in profiles])
    rows = columns(bare, sharing, gpu, capacity_s)
    middle = corrected(capacity_s, plain.log_correction(rows), alone_s)
    low, high = float(np.exp(plain.low)), float(np.exp(plain.high))
    return [Interval(s * low, s, s * high) for s in map(float, middle)]


def _around(step_s: float, spread: float) -> Interval:
    return Interval(step_s * float(np.exp(-spread)), step_s, step_s * float(np.exp(spread)))
