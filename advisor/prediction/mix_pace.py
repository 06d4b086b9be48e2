"""Predicts intervals of the step time of each job in a mix, with or without traces."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import whole_gpu
from advisor.prediction.cache import once_a_mix
from advisor.prediction.correction import SOLO_SPREAD
from advisor.prediction.estimate_doubt import estimate_range
from advisor.prediction.fewer_sms import slowdown_on
from advisor.prediction.interval import Interval, between, interval_around, spanning
from advisor.prediction.mig_instances import on_instances
from advisor.prediction.model_file import Model
from advisor.prediction.own_limit import alone_under_limit, under_unequal_limits
from advisor.prediction.physics import replay_mix
from advisor.prediction.residual import Mix, ReplayFunction, by_replay, corrected
from advisor.prediction.utilisation_model import any_busy, capacity_steps, columns, seen_by_driver
from advisor.sharing import Arrangement, Concurrent, Mps
from advisor.sharing.traversal import instance_sets, together, without_idle_limits
from advisor.workload.plausible import DAY_S, LEAST_STEP_S
from advisor.workload.profile import Profile

# A thousandth of the shortest step, and a million times the longest.
_LEAST_S, _MOST_S = 1e-3 * LEAST_STEP_S, 1e6 * DAY_S


def step_intervals(
    profiles: Sequence[Profile],
    sharing: Arrangement,
    gpu: Gpu,
    model: Model,
    play: ReplayFunction = replay_mix,
) -> list[Interval]:
    """Seconds of a step of each job, in the jobs' order; `play` replays.

    Raises:
        InvalidInput: The model predicts no time or an endless step: it was not fitted properly.
    """
    found = [
        each.times(estimate_range(profile)) if profile.is_estimate else each
        for each, profile in zip(
            _intervals(profiles, sharing, gpu, model, play), profiles, strict=True
        )
    ]
    if min(each.p05 for each in found) < _LEAST_S or max(each.p95 for each in found) > _MOST_S:
        raise InvalidInput(
            f"by the model, a step on {gpu.key} takes no time or years. Fit it anew: `advisor fit`."
        )
    return found


def _intervals(
    profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu, model: Model, play: ReplayFunction
) -> list[Interval]:
    for instances in instance_sets(sharing):
        there = partial(_on_instance, model=model)
        return on_instances(profiles, instances, gpu, model.of(gpu).physics, there)
    shared = together(sharing)
    if shared is None:
        return [around_alone(each, each.step_s, model) for each in profiles]
    return _on_gpu(profiles, shared, gpu, model, play)


@once_a_mix  # many layouts have instances with the same jobs on them
def _on_instance(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model
) -> list[Interval]:
    return _on_gpu(profiles, sharing, gpu, model, replay_mix)


def _on_gpu(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model, play: ReplayFunction
) -> list[Interval]:
    if len(profiles) == 1:
        return [_left_alone(profiles[0], sharing, gpu, model, play)]
    return _shared(profiles, sharing, gpu, model, play)


def _left_alone(
    profile: Profile, sharing: Concurrent, gpu: Gpu, model: Model, play: ReplayFunction
) -> Interval:
    if profile.trace is not None or not sharing.limits:
        return around_alone(profile, alone_s(profile, sharing, gpu, model, play), model)
    limited = whole_gpu(gpu).limited(sharing.limits[0])
    return around_alone(profile, profile.step_s, model).times(slowdown_on(profile, limited))


def around_alone(profile: Profile, step_s: float, model: Model) -> Interval:
    """Interval around `step_s` of a job alone; the model adds no doubt of its own."""
    doubt = model.alone
    scale = doubt.scale([profile], np.array([step_s]), np.array([SOLO_SPREAD]))
    low, high = doubt.log_bounds([profile], scale)
    return interval_around(step_s, float(low[0]), float(high[0]))


def alone_s(
    profile: Profile,
    sharing: Concurrent,
    gpu: Gpu,
    model: Model,
    play: ReplayFunction = replay_mix,
) -> float:
    """Seconds of a step of a job that is left alone: as measured, or under a limit as replayed.

    Without a trace a limit is taken not to slow it.
    """
    if not sharing.limits:
        return profile.step_s
    found = alone_under_limit(profile, sharing.limits[0], gpu, model.of(gpu).physics, play)
    return profile.step_s if found is None else found


def _shared(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model, play: ReplayFunction
) -> list[Interval]:
    sharing = without_idle_limits(sharing)
    if len(set(sharing.limits)) > 1:
        steps = under_unequal_limits(profiles, Mps(sharing.limits), gpu, model, play)
    else:
        everyone = Mix(tuple(profiles), sharing, tuple(range(len(profiles))))
        found = by_replay([everyone], gpu, model, play)
        steps = None if found is None else found[0]
    if steps is None:
        return _by_capacity(profiles, sharing, gpu, model)
    return [Interval(*map(float, each)) for each in steps.T]


def _by_capacity(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model
) -> list[Interval]:
    """Steps by the utilisation model, for jobs of which one has no trace."""
    bare = [seen_by_driver(each) for each in profiles]
    if any(each.gpu_s is None for each in bare):
        found = [_by_capacity(each, sharing, gpu, model) for each in any_busy(bare)]
        return [spanning(each) for each in zip(*found, strict=True)]
    steps, plain = capacity_steps(bare, sharing), model.capacity.get(sharing.mode)
    if steps is None or plain is None:
        # Nothing was fitted: between no loss and strict turns.
        turns = len(profiles)
        return [
            Interval(each.step_s, each.step_s * (1 + turns) / 2, each.step_s * turns)
            for each in profiles
        ]
    capacity_s, profiled_s = np.array(steps), np.array([each.step_s for each in profiles])
    rows = columns(bare, sharing, gpu, capacity_s)
    middle = corrected(capacity_s, plain.log_correction(rows), profiled_s)
    steps_s = [plain.interval(each, float(s)) for each, s in zip(bare, middle, strict=True)]
    return _bounded_by_limits(steps_s, profiles, sharing, gpu, model) if sharing.limits else steps_s


# Limits of which the geometric mean is above this share are answered as partly without limits, so
# that the last of a limit changes little: at limits of 50 to 100 %, 0.3 points nearer to an H200's
# runs and an H100's than by the model of limits alone.
_HARDLY_LIMITED = 0.5


def _bounded_by_limits(
    steps_s: Sequence[Interval],
    profiles: Sequence[Profile],
    sharing: Concurrent,
    gpu: Gpu,
    model: Model,
) -> list[Interval]:
    """Steps under limits, at the upper end of which they are those without limits.

    None is shorter than the job's would be there without mates, which is not among what the model
    of nvidia-smi's numbers is fitted to. Where limits leave a third of an H200 idle, it errs by
    31 % without this, and by 18 % with it (15 steps).
    """
    shares = np.array(sharing.limits) / 100
    weight = min(1.0, (1 - float(np.exp(np.log(shares).mean()))) / (1 - _HARDLY_LIMITED))
    free_s = _by_capacity(profiles, Mps(), gpu, model)
    limited = [whole_gpu(gpu).limited(limit) for limit in sharing.limits]
    return [
        between(free, step, weight).at_least(slowdown_on(profile, part).scaled(profile.step_s))
        for free, step, profile, part in zip(free_s, steps_s, profiles, limited, strict=True)
    ]
