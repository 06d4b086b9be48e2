"""Fits the whole model to the runs of all GPUs, and the pace of each job to the user's own runs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from math import exp, log
from statistics import NormalDist, median
from typing import Any, Literal
from zlib import crc32

import numpy as np

from advisor.errors import InvalidInput, counted
from advisor.learn.memory_power import (
    NO_CONTEXT,
    Trial,
    fit_context,
    fit_edges,
    fit_power,
    log_memory,
    memory_sigma,
    trials,
)
from advisor.learn.observations import MeasuredGpu, ObservedRun, ReplayCache
from advisor.learn.regression import doubt_of, fit_correction, fit_utilisation
from advisor.prediction.capacity import ResidualBounds, is_gpu_bound
from advisor.prediction.correction import SOLO_SPREAD, Correction, Doubt
from advisor.prediction.host import log_beyond_host, profiles_on_host
from advisor.prediction.model import (
    FEWEST_RUNS,
    Data,
    GpuConstants,
    Model,
    OwnPace,
    OwnStep,
    UnseenGpu,
    date_of,
    nearest_constants,
)
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import Physics, TimeSlicing
from advisor.sharing import SHARED_MODES, Mode, parse_sharing
from advisor.sharing.groups import together, without_idle_limits
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.writing import run_line

# Two calibrations of an H200 and one of an H100 timed 2.00 to 2.07 ms, and 0.22 to 0.23 ms for each
# change. Steps of runs depend on little but the share of the one in the other.
_SLICE_S = 2e-3
# The grid of constants; the best lay inside for the first runs on an H200.
_PATIENCES_S = (0.005e-3, 0.01e-3, 0.02e-3)
_SWITCHES_S = (0.18e-3, 0.2e-3, 0.21e-3, 0.22e-3, 0.24e-3)
_PACKINGS = (0.3, 0.45, 0.6)
_CEDED = (0.0, 0.03, 0.05, 0.08)
_BANDWIDTHS = (0.2, 0.35, 0.5, 0.65)
_START = Physics(
    packing=0.45,
    slicing=TimeSlicing(slice_s=_SLICE_S, patience_s=0.01e-3, switch_s=0.2e-3),
    ceded=0.05,
    bandwidth=0.5,
)

# A GPU's own constants replace those common to all where its runs of a mode are so many, and the
# error on them so much less. Drawn runs of an H200 and an H100, 10 to 60 at a time, often chose
# constants 3 % better on them that were worse on all others, up to a tenth in the mean; the cases
# of the studies' cases on an H100 chose slices 10 % better on them and 22 % worse on 60 other runs.
_FEWEST_OF_ONE_GPU = 20
_GAIN = 0.15
# Constants are fitted to about this many runs of a mode: more take longer with the same result.
_TELLING_RUNS = 120


def physics_by_gpu(
    modes: Mapping[Mode, Sequence[ObservedRun]], playback: ReplayCache
) -> dict[str, Physics]:
    """Fit constants of replay for each GPU: common ones, or its own if these are clearly better."""
    common, physics = _best(_START, modes, playback, 0.0), {}
    for key in dict.fromkeys(shared.gpu.key for runs in modes.values() for shared in runs):
        own = {mode: [shared for shared in runs if shared.gpu.key == key]
               for mode, runs in modes.items()}  # fmt: skip
        enough = {mode: runs for mode, runs in own.items() if len(runs) >= _FEWEST_OF_ONE_GPU}
        physics[key] = _best(common, enough, playback, _GAIN)
    return physics


def _best(
    start: Physics, modes: Mapping[Mode, Sequence[ObservedRun]], playback: ReplayCache, gain: float
) -> Physics:
    """The constants of replay with the least error of replay alone, mode by mode.

    Those of `start` stay where no others have an error that is less by the share `gain`.
    """
    physics = start
    choices: dict[Mode, list[dict[str, Any]]] = {
        "naive": [{"slicing": TimeSlicing(slice_s=_SLICE_S, patience_s=a, switch_s=b)}
                  for a, b in product(_PATIENCES_S, _SWITCHES_S)],
        "mps": [{"packing": a, "ceded": b} for a, b in product(_PACKINGS, _CEDED)],
        "mps-limits": [{"bandwidth": bandwidth} for bandwidth in _BANDWIDTHS],
    }  # fmt: skip
    for mode, changes in choices.items():
        every = modes.get(mode, ())
        parts = max(1, len(every) // _TELLING_RUNS)
        # Mostly the same runs whatever family is left out.
        if runs := [shared for shared in every if crc32(shared.run.id.encode()) % parts == 0]:
            tried = [replace(physics, **change) for change in changes]
            errors = [playback.error(runs, constants) for constants in tried]
            best = errors.index(min(errors))
            if errors[best] < (1 - gain) * playback.error(runs, physics):
                physics = tried[best]
    return physics


# For too few solo runs: how steps of host-bound jobs vary (see `Doubt.host_sigma`) on hosts of
# unknown speed and on checked cores, and bounds three times as wide as steps repeat.
_UNKNOWN_HOST, _KNOWN_HOST = 0.25, 0.1
_WIDE = ResidualBounds(low=-3.0, high=3.0)


def widening(held: float) -> float:
    """Return the factor that widens 90 % intervals which held a share `held` of normal errors."""
    normal = NormalDist()
    return max(1.0, normal.inv_cdf(0.95) / normal.inv_cdf((1 + held) / 2))


# With the H100 and each family left out, models of H200 runs held 92, 93 and 95 % of 1,243 steps
# on it (naive, MPS, limits) in unwidened intervals, and 82, 90 and 88 % of the GPU-bound ones;
# models of the fewer H100 runs held 88, 86 and 83 % of 4,108 steps on an H200. On another
# architecture nothing was measured: there all are taken to do as the worst of the former.
FROM_ANOTHER_GPU = UnseenGpu(
    widening=widening(0.82),
    alike=1.0,
    source="models of H200 runs held 93 % of the steps on an H100 in their 90 % intervals, and of "
    "GPU-bound jobs under naive sharing 82 %, which is what other architectures are taken to do",
)


Solo = Sequence[tuple[Profile, Run]]
"""Runs of a single tenant that ran to the end, each with the tenant's profile."""


def fit(
    measured: Sequence[MeasuredGpu],
    playback: ReplayCache | None = None,
    unseen: UnseenGpu = FROM_ANOTHER_GPU,
) -> Model:
    """Fit the model to all runs.

    Raises:
        InvalidInput: There are too few usable runs.
    """
    playback = playback or ReplayCache()
    # Those with the most runs first: the others take from them the constants that they lack.
    shared = sorted(((each, each.shared) for each in measured), key=lambda pair: -len(pair[1]))
    modes = _modes([run for _, usable in shared for run in usable])
    physics = physics_by_gpu(modes, playback)
    own = _constants(shared, physics, playback)
    data, memory_errors = {}, []
    for on_gpu, usable in shared:
        if usable:
            used = {profile.name for run in usable for profile in run.profiles}
            lines = sorted(run_line(run.run) for run in usable)
            data[on_gpu.gpu.key] = Data(
                profiles=len(used & on_gpu.profiles.keys()),
                runs=dict(Counter(run.mode for run in usable)),
                sha256=sha256("".join(lines).encode()).hexdigest(),
            )
            context = (own.get(on_gpu.gpu.key) or nearest_constants(on_gpu.gpu, own)).context
            memory_errors += [log_memory(run, context) for run in usable]
    solo = [pair for each, _ in shared for pair in _solo(each)]
    checked = [(profiles_on_host(run, {profile.name: profile})[0], run)
               for profile, run in solo if run.cores_known]  # fmt: skip
    alone, alone_on_known = _alone(solo, _UNKNOWN_HOST), _alone(checked, _KNOWN_HOST)
    host_sigmas = alone.host_sigma, alone_on_known.host_sigma
    return Model(
        data=data,
        constants=own,
        corrections={mode: _correction(chosen, physics, playback, host_sigmas)
                     for mode, chosen in modes.items()},
        capacity={mode: fitted for mode, chosen in modes.items()
                  if (fitted := fit_utilisation(chosen)) is not None},
        alone=alone,
        alone_on_known_cores=alone_on_known,
        memory_sigma=memory_sigma(np.concatenate(memory_errors)),
        unseen=unseen,
    )  # fmt: skip


def _modes(usable: Sequence[ObservedRun]) -> dict[Mode, list[ObservedRun]]:
    """The runs of all GPUs by mode, if one GPU has enough of them."""
    enough = {}
    for mode in SHARED_MODES:
        chosen = [shared for shared in usable if shared.mode == mode]
        of_gpus = Counter(shared.gpu.key for shared in chosen)
        if max(of_gpus.values(), default=0) >= FEWEST_RUNS:
            enough[mode] = chosen
    if not enough:
        raise InvalidInput(
            f"{counted(len(usable), 'usable shared run')}; at least {FEWEST_RUNS} of one mode on "
            f"one GPU are needed. Measure some: `advisor campaign PLAN`."
        )
    return enough


def _constants(
    seen: Sequence[tuple[MeasuredGpu, Sequence[ObservedRun]]],
    physics: Mapping[str, Physics],
    playback: ReplayCache,
) -> dict[str, GpuConstants]:
    """Constants of each GPU with enough runs; those that its runs do not show, from others."""
    constants: dict[str, GpuConstants] = {}
    tried: dict[str, Sequence[Trial]] = {}
    for measured, usable in seen:
        gpu = measured.gpu
        if len(usable) < FEWEST_RUNS or gpu.key not in physics:
            continue
        like = nearest_constants(gpu, constants) if constants else None
        context = fit_context(measured.profiles, usable, gpu, like.context if like else NO_CONTEXT)
        power = fit_power(usable, _solo(measured), gpu, physics[gpu.key], playback)
        if like is not None:
            power = replace(power, laws=like.power.laws | power.laws)
        tried[gpu.key] = trials(measured.profiles, measured.runs, context, gpu)
        constants[gpu.key] = GpuConstants(physics=physics[gpu.key], context=context, power=power)
    common = fit_edges([trial for some in tried.values() for trial in some])
    return {
        key: replace(each, memory_edges=fit_edges(tried[key]) or common)
        for key, each in constants.items()
    }


def _correction(
    runs: Sequence[ObservedRun], physics: Mapping[str, Physics], playback: ReplayCache,
    host_sigmas: tuple[float, float],
) -> Correction:  # fmt: skip
    """The correction of one mode, with its doubts."""
    raw = playback.rows([replace(each, profiles=each.as_measured) for each in runs], physics)
    checked = playback.rows([each for each in runs if each.run.cores_known], physics)
    telling = playback.rows(runs, physics).that_tell(runs)
    return fit_correction(telling, runs, raw, checked, host_sigmas)


def _alone(pairs: Solo, otherwise: float) -> Doubt:
    """The doubt of steps alone, which predictions take from the profiles.

    `otherwise` is how steps of host-bound jobs vary if there are too few runs.
    """
    log_errors = np.array([log(run.tenants[0].step_s / profile.step_s) for profile, run in pairs])
    profiles = [profile for profile, _ in pairs]
    host_bound = log_errors[np.array([not is_gpu_bound(each) for each in profiles], dtype=bool)]
    enough = len(host_bound) >= FEWEST_RUNS
    host_sigma = float(np.sqrt((host_bound**2).mean())) if enough else otherwise
    if len(pairs) < FEWEST_RUNS:
        return Doubt(host_sigma=host_sigma, gpu_bound=_WIDE, host_bound=_WIDE)
    steps_s = np.array([profile.step_s for profile in profiles])
    spread = np.full(len(pairs), SOLO_SPREAD)
    return doubt_of(log_errors, profiles, steps_s, spread, host_sigma)


def _solo(measured: MeasuredGpu) -> Solo:
    profiles = measured.profiles
    alone = [run for run in measured.runs if len(run.tenants) == 1 and run.shows_pace]
    return [(profiles[name], run) for run in alone for name in run.names if name in profiles]


Part = Literal["host"] | Mode
"""The evidence of a run on a job: its host's pace, or its steps in a mode, on a GPU it fills."""

# The host sets the pace where a step is predicted to be this close to the host's path, in logs.
_HOST_BOUND = 0.1

# A profile counts as so many runs: with as many own runs, the truth is taken to lie in the middle.
# Of 0, 1 and 3, 1 was best, though by little, where each run is predicted with those before it that
# day.
_PROFILE_COUNTS = 1

# The modes in which runs teach a job's steps. Under time slicing, predictions of such jobs are
# within 1 % once fitted to these runs: they got no better, and intervals missed more often.
_TAUGHT: tuple[Mode, ...] = ("mps", "mps-limits")

# A prediction of jobs together counts as so many runs. Of 1, 3, 6 and 10, 3 was best, though by
# little, where runs of an H200 are predicted with those before them by models that never saw the
# family: MAPE of 5.0 % under MPS and 5.5 % under limits fell to 4.0 and 4.6 %. With one factor for
# both it fell to 4.5 and 4.9 %. If the model is fitted to the same runs, less is left to learn.
_PREDICTION_COUNTS = 3


def with_own_paces(model: Model, measured: Iterable[MeasuredGpu]) -> Model:
    """Return `model` with the paces of jobs in the users' own runs among those of `measured`."""
    by_gpu = {
        each.gpu.key: own_paces(each.profiles, each.own, Predictor(each.gpu, model))
        for each in measured
    }
    return replace(model, own_paces={key: paces for key, paces in by_gpu.items() if paces})


def own_paces(
    profiles: Mapping[str, Profile], runs: Iterable[Run], predictor: Predictor
) -> dict[str, OwnPace]:
    """Return the pace of each job in `runs`, by name.

    Args:
        profiles: By name; runs of other workloads are skipped.
        runs: All on the GPU of `predictor`; those on MIG instances and in groups are skipped.
        predictor: Of hosts as fast as those of the profiles.
    """
    logs_of: dict[str, dict[Part, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for (name, part), behind in _logs_of_run(run, profiles, predictor).items():
            logs_of[name][part].append(behind)
    return {
        name: OwnPace(
            slowdown=_drawn(host, _PROFILE_COUNTS) if (host := parts.get("host")) else 1.0,
            runs=len(parts.get("host", ())), profiled=date_of(profiles[name]),
            beside={
                mode: OwnStep(factor=_drawn(logs, _PREDICTION_COUNTS), runs=len(logs))
                for mode in _TAUGHT if (logs := parts.get(mode))
            },
        )
        for name, parts in logs_of.items()
    }  # fmt: skip


def _drawn(logs: Sequence[float], before: int) -> float:
    """The factor that `logs` show, drawn to 1 as by `before` runs."""
    return exp(median(logs) * len(logs) / (len(logs) + before))


def _logs_of_run(
    run: Run, profiles: Mapping[str, Profile], predictor: Predictor
) -> dict[tuple[str, Part], float]:
    """The log of measured over predicted step by name and evidence, median of copies."""
    sharing = together(parse_sharing(run.sharing))
    if not run.shows_pace or sharing is None or not profiles.keys() >= {*run.names}:
        return {}
    mode = without_idle_limits(sharing).mode if len(run.tenants) > 1 else None
    jobs = predictor.predict([profiles[name] for name in run.names], sharing).jobs
    logs: dict[tuple[str, Part], list[float]] = defaultdict(list)
    for name, tenant, job in zip(run.names, run.tenants, jobs, strict=True):
        profile, step_s = profiles[name], job.step_s.p50
        if profile.host_s is None:  # of bare numbers, which do not contain the host's path
            continue
        if log_beyond_host(profile, step_s) < _HOST_BOUND:
            logs[name, "host"].append(log(tenant.step_s / step_s))
        elif mode in _TAUGHT and is_gpu_bound(profile):
            logs[name, mode].append(log(tenant.step_s / step_s))
    return {key: median(of_copies) for key, of_copies in logs.items()}
