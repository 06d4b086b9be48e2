"""The parts of the error of predicted steps, mode by mode, as shares of its square.

The noise of one run comes from repeats. The rest of the squared errors is drawn as a sum of parts,
none of them below zero: one for jobs that the host paces, one that grows with what all jobs
together use of the DRAM and one with the SMs that the mates keep busy, both beyond the median job;
what is left is alike in all jobs. Shares say where the error lies; they do not prove its cause.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.trace import Floats
from advisor.sharing import Mode
from advisor.validate.evaluate import Evaluation
from advisor.validate.noise_and_coverage import noise_of
from advisor.validate.predicted_and_measured import JobComparison, RunComparison, runs_of_mode
from advisor.workload.profile import Profile

NOISE, COMMON = "noise of one run", "alike in all jobs"
HOST, MEMORY, SMS = "host sets the pace", "memory contention", "kernels side by side"
PARTS = (NOISE, HOST, MEMORY, SMS, COMMON)

_WORST = 0.05
_DRAWS, _SEED = 200, 20261121


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The squared error of one mode, by where it lies.

    Attributes:
        rmse: Root of the mean squared error of the step.
        replay_rmse: The same of replay without regression; None if it is not defined.
        parts: Share of the squared error of each of `PARTS`, summing to 1, and the 90 % range of
            that share by a bootstrap of families, since errors in a family are correlated.
        host_checked: Share of the squared error of jobs that the host paces which goes with how
            much faster or slower their cores were than in their profiles; None if not recorded.
        worst: Share of the squared error that the worst twentieth of the jobs holds.
        hardest: The workload that holds most of it.
        of_hardest: Share of the squared error that this one holds.
    """

    rmse: float
    replay_rmse: float | None
    parts: Mapping[str, tuple[float, float, float]]
    host_checked: float | None
    worst: float
    hardest: str
    of_hardest: float


@dataclass(frozen=True, slots=True)
class _Place:
    """One job of a scored run.

    Attributes:
        profile: Its own, as it was measured.
        memory: DRAM activity of all jobs of the run, at their predicted pace.
        sms: SM activity of its mates, in the same way.
        host_check: Log of the check's time on its core over that in its profile.
    """

    job: JobComparison
    profile: Profile
    memory: float
    sms: float
    host_check: float | None


def budget_of(evaluation: Evaluation, mode: Mode) -> Budget | None:
    """Of the jobs that shared in `mode`; None if there are none, or all were met exactly."""
    runs = runs_of_mode(evaluation.runs, mode)
    places = [place for run in runs for place in _places(run, evaluation.profiles)]
    squared = np.array([place.job.error**2 for place in places])
    if not squared.sum():
        return None
    noise = noise_of(runs, evaluation.repeats)
    names = np.array([place.job.job for place in places])
    held = {str(name): float(squared[names == name].sum() / squared.sum()) for name in set(names)}
    hardest = max(sorted(held), key=held.__getitem__)
    worst = np.sort(squared)[-max(1, round(_WORST * len(squared))) :]
    return Budget(
        rmse=float(np.sqrt(squared.mean())),
        replay_rmse=_replay_rmse([place.job for place in places]),
        parts=_parts(places, noise.rmse**2 / 2 if noise else 0.0),
        host_checked=_host_checked(places),
        worst=float(worst.sum() / squared.sum()),
        hardest=hardest,
        of_hardest=held[hardest],
    )


def _places(run: RunComparison, profiles: Mapping[str, Profile]) -> Iterator[_Place]:
    own = [profiles[job.job] for job in run.jobs]
    speeds = [job.alone_s / job.predicted_s.p50 for job in run.jobs]
    dram, sms = (
        np.array([_counter(each, name) * v for each, v in zip(own, speeds, strict=True)])
        for name in ("dram_active", "sm_active")
    )
    for place, (job, profile) in enumerate(zip(run.jobs, own, strict=True)):
        there, alone = run.run.tenants[place].host_check_s, profile.host_check_s
        check = float(np.log(there / alone)) if there and alone else None
        mates = float(sms.sum() - sms[place])
        yield _Place(job, profile, float(dram.sum()), mates, check)


def _counter(profile: Profile, name: str) -> float:
    return float(getattr(profile.counters, name, None) or 0.0)


def _parts(places: Sequence[_Place], noise: float) -> dict[str, tuple[float, float, float]]:
    """Share of each of `PARTS` with its range; `noise` is the mean square of one run's."""
    squared = np.array([place.job.error**2 for place in places])
    host = np.array([not is_gpu_bound(place.profile) for place in places])
    crowds = np.array([(place.memory, place.sms) for place in places])
    beyond = np.maximum(0.0, crowds - np.median(crowds, axis=0))
    drawn = np.column_stack([host, beyond, np.ones(len(places))])
    families, family = np.unique([place.job.family for place in places], return_inverse=True)
    random = np.random.default_rng(_SEED)
    tried = []
    for _ in range(_DRAWS):
        chosen = random.integers(len(families), size=len(families))
        rows = np.concatenate([np.flatnonzero(family == each) for each in chosen])
        tried.append(_shares(drawn[rows], squared[rows], noise))
    low, high = np.quantile(tried, (0.05, 0.95), axis=0)
    middle = _shares(drawn, squared, noise)
    return {name: (float(middle[k]), float(low[k]), float(high[k]))
            for k, name in enumerate(PARTS)}  # fmt: skip


def _shares(drawn: Floats, squared: Floats, noise: float) -> Floats:
    """Of noise, then of each column of `drawn`, in the sum of `squared`; they sum to 1."""
    from scipy.optimize import nnls

    total = float(squared.mean())
    floor = min(noise, total)
    weights, _ = nnls(drawn, squared - floor)
    found = weights * drawn.mean(axis=0)
    if found.sum():
        found *= (total - floor) / found.sum()  # which it is already, unless no constant was found
    return np.array([floor, *found]) / (total or 1.0)


def _replay_rmse(jobs: Sequence[JobComparison]) -> float | None:
    errors = [job.baseline_error("replay") for job in jobs if "replay" in job.baselines_s]
    known = [error for error in errors if error is not None]
    return float(np.sqrt(np.mean(np.square(known)))) if known else None


def _host_checked(places: Sequence[_Place]) -> float | None:
    """R^2 of the log error over the log of the check, of the jobs that the host paces."""
    pairs = [
        (place.host_check, np.log(place.job.measured_s / place.job.predicted_s.p50))
        for place in places
        if place.host_check is not None and not is_gpu_bound(place.profile)
    ]
    checks, errors = np.array(pairs).reshape(-1, 2).T
    if len(pairs) < 3 or not checks.std() or not errors.std():
        return None
    return float(np.corrcoef(checks, errors)[0, 1] ** 2)
