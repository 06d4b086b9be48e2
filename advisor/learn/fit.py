"""Fits the whole model to the runs of all GPUs, and the pace of each job to the user's own."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import exp, log
from pathlib import Path
from statistics import NormalDist, median
from typing import Literal
from zlib import crc32

import numpy as np

from advisor.errors import InvalidInput, counted
from advisor.files.writing import record_line
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
from advisor.learn.observations import (
    MeasuredGpu,
    ObservedRun,
    ReplayCache,
    Rows,
    SoloSteps,
    View,
    profiles_on_checked_host,
    rows_of_solo,
)
from advisor.learn.regression import (
    FittedCorrection,
    fit_intervals,
    fit_utilisation,
    for_other_hosts,
)
from advisor.prediction.caching_predictor import date_of
from advisor.prediction.correction import COLUMNS, KERNEL, Correction, Ends, Intervals, Kernel
from advisor.prediction.find_profile import find_profile
from advisor.prediction.host import is_gpu_bound, log_beyond_host
from advisor.prediction.model import (
    FEWEST_RUNS,
    Data,
    GpuConstants,
    Model,
    OwnPace,
    OwnStep,
    UnseenGpu,
    nearest_constants,
)
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import PHYSICS, Effort, Physics, TimeSlicing
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Mode, parse_sharing
from advisor.sharing.groups import together, without_idle_limits
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import tenants_of


def widening(held: float) -> float:
    """Return the factor that widens 90 % intervals which held a share `held` of normal errors."""
    normal = NormalDist()
    return max(1.0, normal.inv_cdf(0.95) / normal.inv_cdf((1 + held) / 2))


# With the H100 and each family left out, models of H200 runs held 88, 92 and 90 % of 1,243 steps
# on it (naive, MPS, limits) in unwidened intervals, and 77, 90 and 84 % of the GPU-bound ones;
# models of the fewer H100 runs held 84, 87 and 86 % of 4,108 steps on an H200: all before
# `for_other_hosts`. On another architecture nothing was measured: there all are taken to do as the
# worst of the former.
FROM_ANOTHER_GPU = UnseenGpu(
    widening=widening(0.77),
    alike=1.0,
    source="models fitted on an H200 held 90 % of the steps on an H100 in their 90 % intervals, "
    "but 77 % of those of GPU-bound jobs under time-slicing; other architectures are "
    "assumed to do so too",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants of replay and of the regressions, which only `tune` searches."""

    physics: Physics = PHYSICS
    kernels: Mapping[Mode, Kernel] = field(default_factory=dict)

    def kernel(self, mode: Mode) -> Kernel:
        return self.kernels.get(mode, KERNEL)


Solo = Sequence[tuple[Profile, Run]]
"""Runs of a single tenant that ran to the end, each with the tenant's profile."""


def fit(
    measured: Sequence[MeasuredGpu],
    playback: ReplayCache | None = None,
    unseen: UnseenGpu = FROM_ANOTHER_GPU,
    constants: Constants = Constants(),
) -> Model:
    """Fit the model to all runs.

    Raises:
        InvalidInput: There are too few usable runs.
    """
    playback = playback or ReplayCache()
    # Those with the most runs first: the others take from them the constants that they lack.
    shared = sorted(((each, each.shared) for each in measured), key=lambda pair: -len(pair[1]))
    modes = runs_by_mode([run for _, usable in shared for run in usable])
    own = _constants(shared, constants.physics, playback)
    data, memory_errors = {}, []
    for on_gpu, usable in shared:
        if usable:
            used = {profile.name for run in usable for profile in run.profiles}
            lines = sorted(record_line(run.run) for run in usable)
            data[on_gpu.gpu.key] = Data(
                profiles=len(used & on_gpu.profiles.keys()),
                runs=dict(Counter(run.mode for run in usable)),
                sha256=sha256("".join(lines).encode()).hexdigest(),
            )
            context = (own.get(on_gpu.gpu.key) or nearest_constants(on_gpu.gpu, own)).context
            memory_errors += [log_memory(run, context) for run in usable]
    corrections: dict[Mode, Correction] = {}
    solo = [pair for each, _ in shared for pair in _solo(each)]
    intervals: dict[Mode, Intervals] = {"serial": _alone_intervals(solo, checked=False)}
    on_known_host: dict[Mode, Intervals] = {}
    checked = []
    for each, _ in shared:
        steps_alone = SoloSteps(each.runs)
        for _, run in _solo(each):
            if here := profiles_on_checked_host(run, each.profiles, steps_alone):
                checked.append((here[0], run))
    if checked:
        on_known_host["serial"] = _alone_intervals(checked, checked=True)
    for mode, runs in modes.items():
        steps = StepsLeftOut(runs, mode, playback, constants)
        if steps.fitted is not None:
            corrections[mode] = steps.fitted.correction
        intervals[mode] = steps.intervals("as_measured")
        if any(run.on_checked_host for run in runs):
            on_known_host[mode] = steps.intervals("on_checked_host")
    return Model(
        data=data,
        constants=own,
        corrections=corrections,
        intervals=intervals,
        intervals_on_known_host=on_known_host,
        capacity=fit_utilisation(modes),
        memory_sigma=memory_sigma(np.concatenate(memory_errors)),
        unseen=unseen,
    )


class StepsLeftOut:
    """The regression of one mode, and its predictions of jobs without their families."""

    def __init__(
        self,
        runs: Sequence[ObservedRun],
        mode: Mode,
        playback: ReplayCache,
        constants: Constants,
        effort: Effort = Effort(),  # noqa: B008 - frozen
    ) -> None:
        """Fit the correction of `mode` to those of its `runs` that show the effect of sharing."""
        self._runs, self._mode, self._playback = runs, mode, playback
        self._physics, self._effort, self.fitted = constants.physics, effort, None
        rows = self._rows("profiles").that_tell(runs)
        if mode in COLUMNS and len(rows.profiles):
            kernel = constants.kernel(mode)
            self.fitted = FittedCorrection(rows, runs, COLUMNS[mode], kernel)

    def _rows(self, view: View) -> Rows:
        return self._playback.rows(self._runs, view, self._physics, self._effort)

    def _steps_s(self, rows: Rows) -> Floats:
        if self.fitted is None:
            return np.maximum(rows.replayed_s, rows.alone_s)
        return self.fitted.steps_left_out(rows)

    def intervals(self, view: View) -> Intervals:
        """Return the intervals of steps predicted from profiles in that `view`, on any host."""
        rows, checked = self._rows(view), view == "on_checked_host"
        fitted = fit_intervals(rows, self._steps_s(rows), self._mode)
        return for_other_hosts(fitted, self._mode, checked=checked)

    def error(self) -> float:
        """Return the mean absolute log error of the rows that show the effect of sharing."""
        rows = self._rows("profiles").that_tell(self._runs)
        return float(np.abs(np.log(rows.measured_s / self._steps_s(rows))).mean())


def runs_by_mode(usable: Sequence[ObservedRun]) -> dict[Mode, list[ObservedRun]]:
    """Return the runs of all GPUs by mode, if one GPU has enough of them."""
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
    physics: Physics,
    playback: ReplayCache,
) -> dict[str, GpuConstants]:
    """Constants of each GPU with enough runs; those that its runs do not show, from others."""
    constants: dict[str, GpuConstants] = {}
    tried: dict[str, Sequence[Trial]] = {}
    for measured, usable in seen:
        gpu = measured.gpu
        if len(usable) < FEWEST_RUNS:
            continue
        like = nearest_constants(gpu, constants) if constants else None
        context = fit_context(measured.profiles, usable, gpu, like.context if like else NO_CONTEXT)
        power = fit_power(usable, _solo(measured), gpu, physics, playback)
        if like is not None:
            power = replace(power, laws=like.power.laws | power.laws)
        tried[gpu.key] = trials(measured.profiles, measured.runs, context, gpu)
        constants[gpu.key] = GpuConstants(physics=physics, context=context, power=power)
    common = fit_edges([trial for some in tried.values() for trial in some])
    return {
        key: replace(each, memory_edges=fit_edges(tried[key]) or common)
        for key, each in constants.items()
    }


# For too few solo runs: ends of the log of a step alone over that of the profile.
_WIDE = Intervals(
    gpu_bound=Ends(at=(0.0,), low=(-0.09,), high=(0.09,)),
    host_bound=Ends(at=(0.0,), low=(-0.75,), high=(0.75,)),
)


def _alone_intervals(pairs: Solo, *, checked: bool) -> Intervals:
    """Intervals of steps alone, which predictions take from the profiles."""
    if len(pairs) < FEWEST_RUNS:
        return _WIDE
    rows = rows_of_solo(pairs)
    fitted = fit_intervals(rows, rows.alone_s, "serial")
    return for_other_hosts(fitted, "serial", checked=checked)


def _solo(measured: MeasuredGpu) -> Solo:
    profiles = measured.profiles
    alone = [run for run in measured.runs if len(run.tenants) == 1 and run.shows_pace]
    return [(profiles[name], run) for run in alone for name in run.names if name in profiles]


# Trials of `tune`, and about how many runs of a mode each replays.
_TRIALS, _TELLING_RUNS = 40, 120
_SEED = 2028
_TO_COMPARE = Effort(events=20_000)


def tune(measured: Sequence[MeasuredGpu], playback: ReplayCache | None = None) -> Constants:
    """Search constants with the least error on families left out, each mode counting the same.

    Raises:
        InvalidInput: There are too few usable runs.
    """
    import optuna

    playback = playback or ReplayCache()
    modes = runs_by_mode([run for each in measured for run in each.shared])
    some: dict[Mode, list[ObservedRun]] = {}
    for mode, runs in modes.items():
        parts = max(1, len(runs) // _TELLING_RUNS)
        some[mode] = [run for run in runs if crc32(run.run.id.encode()) % parts == 0]

    def constants_of(trial: "optuna.trial.BaseTrial") -> Constants:
        physics = Physics(
            packing=trial.suggest_float("packing", 0.0, 0.8),
            ceded=trial.suggest_float("ceded", 0.0, 0.15),
            bandwidth=trial.suggest_float("bandwidth", 0.0, 1.0),
            slicing=TimeSlicing(
                slice_s=PHYSICS.slicing.slice_s,
                switch_s=trial.suggest_float("switch_s", 1e-4, 4e-4, log=True),
            ),
        )
        kernel = Kernel(
            length=trial.suggest_float("length", 4.0, 16.0, log=True),
            signal=trial.suggest_float("signal", 4e-3, 0.12, log=True),
            noise=KERNEL.noise,
        )
        return Constants(physics=physics, kernels=dict.fromkeys(COLUMNS, kernel))

    def error(trial: "optuna.Trial") -> float:
        constants = constants_of(trial)
        errors = [
            StepsLeftOut(runs, mode, playback, constants, _TO_COMPARE).error()
            for mode, runs in some.items()
        ]
        return float(np.mean(errors))

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=_SEED, multivariate=True))
    slicing = PHYSICS.slicing
    study.enqueue_trial(
        {
            "packing": PHYSICS.packing,
            "ceded": PHYSICS.ceded,
            "bandwidth": PHYSICS.bandwidth,
            "switch_s": slicing.switch_s,
            "length": KERNEL.length,
            "signal": KERNEL.signal,
        }
    )
    study.optimize(error, _TRIALS)
    return constants_of(optuna.trial.FixedTrial(study.best_params))


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


def with_own_paces(
    model: Model, measured: Iterable[MeasuredGpu], folder: Path | None = None
) -> Model:
    """Return `model` with the paces of jobs in the users' own runs among those of `measured`.

    They are relative to the profiles of `folder` as answers use them, on one host for all GPUs.
    """
    by_gpu = {}
    for each in measured:
        names = tenants_of(each.own) & each.profiles.keys()
        profiles = {name: find_profile(name, each.gpu, folder) for name in names}
        by_gpu[each.gpu.key] = own_paces(profiles, each.own, Predictor(each.gpu, model))
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
            runs=len(parts.get("host", ())),
            profiled=date_of(profiles[name]),
            beside={
                mode: OwnStep(factor=_drawn(logs, _PREDICTION_COUNTS), runs=len(logs))
                for mode in _TAUGHT
                if (logs := parts.get(mode))
            },
        )
        for name, parts in logs_of.items()
    }


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
