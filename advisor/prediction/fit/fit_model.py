"""Fits the whole model of one GPU to its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.memory_fit import (
    fit_context,
    fit_edges,
    log_memory,
    memory_sigma,
    trials,
)
from advisor.prediction.fit.observation import ObservedRun, ReplayCache, shared_runs
from advisor.prediction.fit.power_fit import fit_power
from advisor.prediction.fit.regression import fit_correction
from advisor.prediction.fit.utilisation_fit import fit_utilisation, utilisation_rows
from advisor.prediction.model_file import Data, Model, SoloSpread, is_gpu_bound
from advisor.prediction.physics import Physics
from advisor.prediction.replay import TimeSlicing
from advisor.prediction.transfer import on_like_core
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
    held = [log_memory(shared, context, gpu) for shared in usable]
    return Model(
        gpu=gpu.key,
        data=_data(profiles, usable),
        physics=physics,
        corrections={mode: fit_correction(playback.rows(chosen, physics), chosen)
                     for mode, chosen in modes.items()},
        capacity={mode: fit_utilisation(rows, chosen) for mode, chosen in modes.items()
                  if (rows := utilisation_rows(chosen, gpu)) is not None},
        alone=_alone(profiles, runs),
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


def _alone(profiles: Mapping[str, Profile], runs: Sequence[Run]) -> SoloSpread:
    """From solo runs of profiled workloads; 5 % and 10 % where there are too few.

    Only runs on a core as fast as the profile's, since profiles are made where plans will run.
    """
    solo = [(profile, run.tenants[0]) for profile, run in _solo(profiles, runs)]
    pairs = [each for each in solo if on_like_core(*each)]
    far = [(is_gpu_bound(p), abs(float(np.log(tenant.step_s / p.step_s)))) for p, tenant in pairs]
    busy, idle = ([each for bound, each in far if bound is kind] for kind in (True, False))
    return SoloSpread(
        gpu_bound=float(np.quantile(busy, 0.9)) if len(busy) >= _FEWEST_RUNS else 0.05,
        host_bound=float(np.quantile(idle, 0.9)) if len(idle) >= _FEWEST_RUNS else 0.10,
    )


def _solo(profiles: Mapping[str, Profile], runs: Sequence[Run]) -> list[tuple[Profile, Run]]:
    """The runs of one tenant that ran to the end, each with its profile."""
    alone = [run for run in runs if len(run.tenants) == 1 and run.shows_pace]
    named = [(run.tenants[0].workload.name, run) for run in alone]
    return [(profiles[name], run) for name, run in named if name in profiles]
