"""The error of predictions from what nvidia-smi shows alone, as on an A100.

The scored runs are predicted again from profiles without kernel trace, GPM counters and probe. What
such answers are fitted to, and their intervals, see no run with the family that is predicted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import ObservedRun, shared_runs
from advisor.prediction.fit.utilisation_fit import fit_utilisation
from advisor.prediction.model_file import Model
from advisor.prediction.predictor import Predictor
from advisor.prediction.utilisation_model import UtilisationModel, seen_by_driver
from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.folds import Held, compared_by
from advisor.validate.noise_and_coverage import coverage_of, mean_width
from advisor.validate.predicted_and_measured import (
    JobComparison,
    RunComparison,
    compare,
    profiles_of,
    runs_of_mode,
)
from advisor.validate.score_tables import MODE_WORDS, percent
from advisor.validate.selection import families_of
from advisor.workload.profile import Profile
from advisor.workload.run import Run

HEADINGS = (
    "sharing", "profile", "jobs", "MAPE", "P90", "in 90 % interval", "mean width of the interval"
)  # fmt: skip

WHOLE, BARE = "whole", "nvidia-smi alone"

# Why an interval is as wide as it is without the rest of a profile.
_WHY = {
    "naive": "Jobs take turns, so how long each keeps the GPU busy nearly says it all, and "
    "utilisation tells that.",
    "mps": "Utilisation counts time in which any kernel ran, be it on one SM or on all: it does "
    "not tell how many SMs a job leaves to others, nor how long its kernels make them wait.",
    "mps-limits": "Utilisation does not tell how many SMs a job needs, so not what a limit costs "
    "it, nor what its mates take of a bandwidth that no limit divides.",
}


def seen_by_driver_alone(
    profiles: Mapping[str, Profile], runs: Sequence[Run], scored: Sequence[Run], model: Model,
    gpu: Gpu,
) -> tuple[RunComparison, ...]:  # fmt: skip
    """`scored`, predicted from what nvidia-smi shows of each job, its family left out.

    Args:
        profiles: Solo profiles by name, whole.
        runs: All that may be fitted to.
        scored: Those that are predicted.
        model: Of it nothing is used that was fitted to whole profiles.
        gpu: The GPU that all of them ran on.
    """
    bare = {name: seen_by_driver(profile) for name, profile in profiles.items()}
    usable = shared_runs(profiles, runs, gpu)
    held: Held = {}
    for family in families_of(scored):
        seen = [each for each in usable if family not in each.families]
        predictor = Predictor(gpu, replace(model, capacity=_capacity(seen)))
        for run in scored:
            if family in families_of([run]):
                jobs = compare(run, profiles_of(run, bare, "raw"), predictor, gpu, {}).jobs
                held |= {(run.id, place): job for place, job in enumerate(jobs)
                         if job.family == family}  # fmt: skip
    return compared_by(held, scored)


def _capacity(seen: Sequence[ObservedRun]) -> dict[Mode, UtilisationModel]:
    """By mode, fitted to those of `seen` that ran in it."""
    modes = {mode: [each for each in seen if each.mode == mode] for mode in SHARED_MODES}
    return {mode: found for mode, chosen in modes.items()
            if (found := fit_utilisation(chosen)) is not None}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How good answers are in one mode from what a profile shows; shares of the measured step.

    Attributes:
        profile: What of it: `WHOLE` or `BARE`.
        n: Jobs.
        mape: Mean absolute error.
        coverage90: Share of measured steps inside their 90 % interval.
        width: Mean width of the interval, as a share of the predicted step.
    """

    mode: Mode
    profile: str
    n: int
    mape: float
    p90: float
    coverage90: float
    width: float


def seen(whole: Sequence[RunComparison], bare: Sequence[RunComparison]) -> tuple[Seen, ...]:
    """Of each mode two: from whole profiles, and from bare ones."""
    return tuple(
        _seen(mode, profile, jobs)
        for mode in SHARED_MODES
        for profile, runs in ((WHOLE, whole), (BARE, bare))
        if (jobs := [job for run in runs_of_mode(runs, mode) for job in run.jobs])
    )


def _seen(mode: Mode, profile: str, jobs: Sequence[JobComparison]) -> Seen:
    errors = np.abs([job.error for job in jobs])
    return Seen(
        mode=mode,
        profile=profile,
        n=len(jobs),
        mape=float(errors.mean()),
        p90=float(np.quantile(errors, 0.9)),
        coverage90=coverage_of(jobs).share,
        width=mean_width(jobs),
    )


def fewer_rows(found: Iterable[Seen]) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each of `found`."""
    return [
        (
            MODE_WORDS[each.mode],
            each.profile,
            str(each.n),
            *map(percent, (each.mape, each.p90, each.coverage90, each.width)),
        )
        for each in found
    ]


def widening(found: Iterable[Seen]) -> list[str]:
    """How much wider intervals are from bare profiles, and why; one line a mode."""
    widths = {(each.mode, each.profile): each.width for each in found}
    return [
        f"**{MODE_WORDS[mode]}**: intervals are {widths[mode, BARE] / widths[mode, WHOLE]:.1f} "
        f"times as wide as from whole profiles. {_WHY[mode]}"
        for mode in SHARED_MODES
        if {(mode, WHOLE), (mode, BARE)} <= widths.keys()
    ]
