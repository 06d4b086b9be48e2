"""Fits the whole model of one GPU to its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from math import log
from typing import Any
from zlib import crc32

import numpy as np

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.correction import SOLO_SPREAD, Correction, Doubt, ResidualBounds
from advisor.prediction.fit.doubt_fit import doubt_of
from advisor.prediction.fit.memory_fit import (
    fit_context,
    fit_edges,
    log_memory,
    memory_sigma,
    trials,
)
from advisor.prediction.fit.observation import ObservedRun, ReplayCache, shared_runs
from advisor.prediction.fit.power_fit import fit_power
from advisor.prediction.fit.regression import Elsewhere, fit_correction
from advisor.prediction.fit.utilisation_fit import fit_utilisation
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.model_file import Data, Model
from advisor.prediction.physics import Physics
from advisor.prediction.replay import TimeSlicing
from advisor.prediction.trace import Floats
from advisor.prediction.transfer import profiles_on_host
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.writing import run_line

# Where the constants are looked for; the best lay inside for the first runs on an H200.
_SLICES_S = (1e-3, 1.5e-3, 2e-3)
_PATIENCES_S = (0.015e-3, 0.03e-3, 0.06e-3)
_SWITCHES_S = (0.1e-3, 0.2e-3, 0.3e-3)
_PACKINGS = (0.3, 0.45, 0.6)
_CEDED = (0.0, 0.03, 0.05, 0.08)
_BANDWIDTHS = (0.0, 0.25, 0.5, 0.75)
_START = Physics(
    packing=0.45,
    slicing=TimeSlicing(slice_s=1e-3, patience_s=0.03e-3, switch_s=0.2e-3),
    ceded=0.05,
    bandwidth=0.5,
)
_FEWEST_RUNS = 5
# Where too few solo runs tell: how steps of host-bound jobs vary (see `Doubt.host_sigma`) on hosts
# of unknown speed and on checked cores, and bounds three times as wide as steps repeat.
_UNKNOWN_HOST, _KNOWN_HOST = 0.25, 0.1
_WIDE = ResidualBounds(low=-3.0, high=3.0)
# Constants are fitted to about this many runs of a mode: more take longer with the same result.
_TELLING_RUNS = 120


def fit(
    profiles: Mapping[str, Profile],
    runs: Sequence[Run],
    gpu: Gpu,
    playback: ReplayCache | None = None,
) -> Model:
    """The model that `runs` on `gpu` support.

    Args:
        profiles: Solo profiles by name; runs of other workloads are skipped.
        runs: Runs on `gpu`; those that failed or ran alone are not used for sharing.
        gpu: The GPU on which all of them were measured.
        playback: Cached replays, if several fits share runs.

    Raises:
        InvalidInput: Too few usable runs, or runs or profiles of another GPU.
    """
    measured_on = {run.gpu for run in runs} | {each.gpu for each in profiles.values()}
    if strangers := measured_on - {gpu.key}:
        raise InvalidInput(
            f"runs and profiles of {', '.join(sorted(strangers))} cannot be used to fit {gpu.key}"
        )
    usable = shared_runs(profiles, runs)
    modes = _modes(usable, gpu)
    playback = playback or ReplayCache(gpu)
    physics = _physics(modes, playback)
    context = fit_context(profiles, usable, gpu)
    solo = _Solo(_solo(profiles, runs))
    held = [log_memory(shared, context, gpu) for shared in usable]
    return Model(
        gpu=gpu.key,
        data=_data(profiles, usable),
        physics=physics,
        corrections={mode: _correction(chosen, physics, playback, solo)
                     for mode, chosen in modes.items()},
        capacity={mode: found for mode, chosen in modes.items()
                  if (found := fit_utilisation(chosen, gpu)) is not None},
        alone=_alone(solo.raw, _UNKNOWN_HOST),
        alone_on_known_cores=_alone(solo.on_known_cores, _KNOWN_HOST),
        context=context,
        memory_sigma=memory_sigma(np.concatenate(held)),
        power=fit_power(usable, _solo(profiles, runs), gpu, physics, playback),
        memory_edges=fit_edges(trials(profiles, runs, context, gpu)),
    )  # fmt: skip


def _modes(usable: Sequence[ObservedRun], gpu: Gpu) -> dict[Mode, list[ObservedRun]]:
    """The runs of each mode that has enough of them."""
    modes = {mode: [each for each in usable if each.mode == mode]
             for mode in SHARED_MODES}  # fmt: skip
    enough = {mode: chosen for mode, chosen in modes.items() if len(chosen) >= _FEWEST_RUNS}
    if not enough:
        raise InvalidInput(
            f"{counted(len(usable), 'usable shared run')} on {gpu.key}; at least {_FEWEST_RUNS} "
            f"of one mode are needed. Measure some: `advisor campaign PLAN`."
        )
    return enough


def _data(profiles: Mapping[str, Profile], usable: Sequence[ObservedRun]) -> Data:
    used = {profile.name for shared in usable for profile in shared.profiles}
    lines = sorted(run_line(shared.run) for shared in usable)
    return Data(
        profiles=len(used & profiles.keys()),
        runs=len(usable),
        sha256=sha256("".join(lines).encode()).hexdigest(),
    )


def _physics(modes: Mapping[Mode, Sequence[ObservedRun]], playback: ReplayCache) -> Physics:
    """The constants of replay with the least error of replay alone, mode by mode."""
    physics = _START
    slicings = [TimeSlicing(slice_s=a, patience_s=b, switch_s=c)
                for a, b, c in product(_SLICES_S, _PATIENCES_S, _SWITCHES_S)]  # fmt: skip
    choices: dict[Mode, list[dict[str, Any]]] = {
        "naive": [{"slicing": slicing} for slicing in slicings],
        "mps": [{"packing": a, "ceded": b} for a, b in product(_PACKINGS, _CEDED)],
        "mps-limits": [{"bandwidth": bandwidth} for bandwidth in _BANDWIDTHS],
    }
    for mode, changes in choices.items():
        if runs := _some(modes.get(mode, ())):
            tried = [replace(physics, **change) for change in changes]
            errors = [playback.error(runs, each) for each in tried]
            physics = tried[errors.index(min(errors))]
    return physics


def _some(runs: Sequence[ObservedRun]) -> list[ObservedRun]:
    """About `_TELLING_RUNS` of `runs`, mostly the same ones whatever family is left out."""
    parts = max(1, len(runs) // _TELLING_RUNS)
    return [shared for shared in runs if crc32(shared.run.id.encode()) % parts == 0]


@dataclass(frozen=True, slots=True)
class _Solo:
    """Solo runs of profiled workloads, each with its profile."""

    raw: Sequence[tuple[Profile, Run]]

    @property
    def on_known_cores(self) -> list[tuple[Profile, Run]]:
        """Those on checked cores, with profiles as on these."""
        checked = [each for each in self.raw if each[1].tenants[0].host_check_s is not None]
        return [(profiles_on_host(run, {p.name: p})[0], run) for p, run in checked]


def _correction(
    runs: Sequence[ObservedRun], physics: Physics, playback: ReplayCache, solo: _Solo
) -> Correction:
    """The correction of one mode, with its doubts."""
    checked = [each for each in runs if each.cores_known]
    raw = [replace(each, profiles=each.as_measured) for each in runs]
    elsewhere = Elsewhere(
        raw=playback.rows(raw, physics),
        on_known_cores=playback.rows(checked, physics),
        host_sigma=(
            _host_sigma(solo.raw, _UNKNOWN_HOST),
            _host_sigma(solo.on_known_cores, _KNOWN_HOST),
        ),
    )
    return fit_correction(playback.telling_rows(runs, physics), runs, elsewhere)


def _log_errors(pairs: Sequence[tuple[Profile, Run]]) -> Floats:
    """Log of each step alone over its profile's, shape (pairs,)."""
    return np.array([log(run.tenants[0].step_s / profile.step_s) for profile, run in pairs])


def _host_sigma(pairs: Sequence[tuple[Profile, Run]], otherwise: float) -> float:
    """How far steps of host-bound jobs are from their profiles', in the root of the mean square."""
    log_errors = _log_errors([each for each in pairs if not is_gpu_bound(each[0])])
    if len(log_errors) < _FEWEST_RUNS:
        return otherwise
    return float(np.sqrt((log_errors**2).mean()))


def _alone(pairs: Sequence[tuple[Profile, Run]], otherwise: float) -> Doubt:
    """The doubt in steps alone, which the model takes from their profiles."""
    host_sigma = _host_sigma(pairs, otherwise)
    if len(pairs) < _FEWEST_RUNS:
        return Doubt(host_sigma=host_sigma, gpu_bound=_WIDE, host_bound=_WIDE)
    profiles = [profile for profile, _ in pairs]
    steps_s = np.array([each.step_s for each in profiles])
    spread = np.full(len(pairs), SOLO_SPREAD)
    return doubt_of(_log_errors(pairs), profiles, steps_s, spread, host_sigma)


def _solo(profiles: Mapping[str, Profile], runs: Sequence[Run]) -> list[tuple[Profile, Run]]:
    """The runs of one tenant that ran to the end, each with its profile."""
    alone = [run for run in runs if len(run.tenants) == 1 and run.shows_pace]
    named = [(run.tenants[0].workload.name, run) for run in alone]
    return [(profiles[name], run) for name, run in named if name in profiles]
