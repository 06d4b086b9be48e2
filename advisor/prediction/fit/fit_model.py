"""Fits the whole model to the runs of all GPUs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import log
from statistics import NormalDist

import numpy as np

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.correction import SOLO_SPREAD, Correction, Doubt
from advisor.prediction.fit.doubt_fit import doubt_of
from advisor.prediction.fit.memory_fit import (
    NO_CONTEXT,
    Trial,
    fit_context,
    fit_edges,
    log_memory,
    memory_sigma,
    trials,
)
from advisor.prediction.fit.observation import MeasuredGpu, ObservedRun, rows_by_gpu
from advisor.prediction.fit.physics_fit import physics_by_gpu
from advisor.prediction.fit.power_fit import fit_power
from advisor.prediction.fit.regression import Elsewhere, fit_correction
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.fit.utilisation_fit import fit_utilisation
from advisor.prediction.gpu_constants import GpuConstants, nearest_constants
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.model_file import FEWEST_RUNS, Data, Model, UnseenGpu
from advisor.prediction.physics import Physics
from advisor.prediction.residual_bounds import ResidualBounds
from advisor.prediction.tenant_hosts import profiles_on_host
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.writing import run_line

# Where too few solo runs tell: how steps of host-bound jobs vary (see `Doubt.host_sigma`) on hosts
# of unknown speed and on checked cores, and bounds three times as wide as steps repeat.
_UNKNOWN_HOST, _KNOWN_HOST = 0.25, 0.1
_WIDE = ResidualBounds(low=-3.0, high=3.0)


def widening(held: float) -> float:
    """Factor by which to widen 90 % intervals that held a share `held`, if errors are normal."""
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


def fit(
    measured: Sequence[MeasuredGpu],
    playback: ReplayCache | None = None,
    unseen: UnseenGpu = FROM_ANOTHER_GPU,
) -> Model:
    """Fit the model to all runs.

    Args:
        measured: For each GPU its profiles and runs.
        playback: Cached replays, if several fits share runs.
        unseen: Widening of answers for GPUs without runs.

    Raises:
        InvalidInput: There are too few usable runs.
    """
    playback = playback or ReplayCache()
    # Those with the most runs first: the others take from them what they were not asked.
    shared = sorted(((each, each.shared) for each in measured), key=lambda pair: -len(pair[1]))
    modes = _modes([run for _, usable in shared for run in usable])
    physics = physics_by_gpu(modes, playback)
    solo = _Solo([pair for each, _ in shared for pair in _solo(each)])
    own = _constants(shared, physics, playback)
    held = [log_memory(run, _nearest(run.gpu, own).context)
            for _, usable in shared for run in usable]  # fmt: skip
    return Model(
        data={each.gpu.key: _data(each, usable) for each, usable in shared if usable},
        constants=own,
        corrections={mode: _correction(chosen, physics, playback, solo)
                     for mode, chosen in modes.items()},
        capacity={mode: found for mode, chosen in modes.items()
                  if (found := fit_utilisation(chosen)) is not None},
        alone=_alone(solo.raw, _UNKNOWN_HOST),
        alone_on_known_cores=_alone(solo.on_known_cores, _KNOWN_HOST),
        memory_sigma=memory_sigma(np.concatenate(held)),
        unseen=unseen,
    )  # fmt: skip


_Seen = Sequence[tuple[MeasuredGpu, Sequence[ObservedRun]]]
"""Each GPU with those of its runs that fitting can use."""


def _modes(usable: Sequence[ObservedRun]) -> dict[Mode, list[ObservedRun]]:
    """By mode: the runs of all GPUs, if one GPU has enough of them."""
    modes = {mode: [each for each in usable if each.mode == mode]
             for mode in SHARED_MODES}  # fmt: skip
    enough = {
        mode: chosen for mode, chosen in modes.items()
        if max(Counter(each.gpu.key for each in chosen).values(), default=0) >= FEWEST_RUNS
    }  # fmt: skip
    if not enough:
        raise InvalidInput(
            f"{counted(len(usable), 'usable shared run')}; at least {FEWEST_RUNS} of one mode on "
            f"one GPU are needed. Measure some: `advisor campaign PLAN`."
        )
    return enough


def _data(measured: MeasuredGpu, usable: Sequence[ObservedRun]) -> Data:
    used = {profile.name for shared in usable for profile in shared.profiles}
    lines = sorted(run_line(shared.run) for shared in usable)
    return Data(
        profiles=len(used & measured.profiles.keys()),
        runs=dict(Counter(shared.mode for shared in usable)),
        sha256=sha256("".join(lines).encode()).hexdigest(),
    )


def _nearest(gpu: Gpu, known: Mapping[str, GpuConstants]) -> GpuConstants:
    return known.get(gpu.key) or nearest_constants(gpu, known)


def _constants(
    seen: _Seen, physics: Mapping[str, Physics], playback: ReplayCache
) -> dict[str, GpuConstants]:
    """Constants of each GPU with enough runs; what its runs do not show is taken from others."""
    found: dict[str, GpuConstants] = {}
    tried: dict[str, Sequence[Trial]] = {}
    for each, usable in seen:
        if len(usable) < FEWEST_RUNS or each.gpu.key not in physics:
            continue
        gpu, like = each.gpu, nearest_constants(each.gpu, found) if found else None
        context = fit_context(each.profiles, usable, gpu, like.context if like else NO_CONTEXT)
        power = fit_power(usable, _solo(each), gpu, physics[gpu.key], playback)
        if like is not None:
            power = replace(power, laws=like.power.laws | power.laws)
        tried[gpu.key] = trials(each.profiles, each.runs, context, gpu)
        found[gpu.key] = GpuConstants(physics=physics[gpu.key], context=context, power=power)
    common = fit_edges([trial for some in tried.values() for trial in some])
    return {
        key: replace(each, memory_edges=fit_edges(tried[key]) or common)
        for key, each in found.items()
    }


@dataclass(frozen=True, slots=True)
class _Solo:
    """Solo runs of profiled workloads, each with its profile."""

    raw: Sequence[tuple[Profile, Run]]

    @property
    def on_known_cores(self) -> list[tuple[Profile, Run]]:
        """The runs on cores of known speed, with profiles converted to these."""
        checked = [each for each in self.raw if each[1].tenants[0].host_check_s is not None]
        return [(profiles_on_host(run, {p.name: p})[0], run) for p, run in checked]


def _correction(
    runs: Sequence[ObservedRun],
    physics: Mapping[str, Physics],
    playback: ReplayCache,
    solo: _Solo,
) -> Correction:
    """The correction of one mode, with its doubts."""
    checked = [each for each in runs if each.cores_known]
    raw = [replace(each, profiles=each.as_measured) for each in runs]
    elsewhere = Elsewhere(
        raw=rows_by_gpu(raw, lambda some, key: playback.rows(some, physics[key])),
        on_known_cores=rows_by_gpu(checked, lambda some, key: playback.rows(some, physics[key])),
        host_sigma=(
            _host_sigma(solo.raw, _UNKNOWN_HOST),
            _host_sigma(solo.on_known_cores, _KNOWN_HOST),
        ),
    )
    telling = rows_by_gpu(runs, lambda some, key: playback.telling_rows(some, physics[key]))
    return fit_correction(telling, runs, elsewhere)


def _log_errors(pairs: Sequence[tuple[Profile, Run]]) -> Floats:
    """Log of each step alone over its profile's, shape (pairs,)."""
    return np.array([log(run.tenants[0].step_s / profile.step_s) for profile, run in pairs])


def _host_sigma(pairs: Sequence[tuple[Profile, Run]], otherwise: float) -> float:
    """Root mean squared log error of host-bound solo steps against their profiles."""
    log_errors = _log_errors([each for each in pairs if not is_gpu_bound(each[0])])
    if len(log_errors) < FEWEST_RUNS:
        return otherwise
    return float(np.sqrt((log_errors**2).mean()))


def _alone(pairs: Sequence[tuple[Profile, Run]], otherwise: float) -> Doubt:
    """The doubt of steps alone, which predictions take from the profiles."""
    host_sigma = _host_sigma(pairs, otherwise)
    if len(pairs) < FEWEST_RUNS:
        return Doubt(host_sigma=host_sigma, gpu_bound=_WIDE, host_bound=_WIDE)
    profiles = [profile for profile, _ in pairs]
    steps_s = np.array([each.step_s for each in profiles])
    spread = np.full(len(pairs), SOLO_SPREAD)
    return doubt_of(_log_errors(pairs), profiles, steps_s, spread, host_sigma)


def _solo(measured: MeasuredGpu) -> list[tuple[Profile, Run]]:
    """The runs of a single tenant that ran to the end, each with its profile."""
    profiles = measured.profiles
    alone = [run for run in measured.runs if len(run.tenants) == 1 and run.shows_pace]
    named = [(run.tenants[0].workload.name, run) for run in alone]
    return [(profiles[name], run) for name, run in named if name in profiles]
