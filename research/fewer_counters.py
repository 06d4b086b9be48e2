"""The error of predictions from less than a whole profile, as users of other GPUs have it.

The scored runs are predicted again from profiles of which parts were taken away, by the models that
saw no run with the family that is predicted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.model_file import Model
from advisor.prediction.predictor import Predictor
from advisor.prediction.residual import ReplayFunction
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
from advisor.workload.measured import Counters
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Profile
from advisor.workload.run import Run

HEADINGS = (
    "sharing", "profile", "jobs", "MAPE", "P90", "in 90 % interval", "mean width of the interval"
)  # fmt: skip

WHOLE, NO_GPM = "whole", "no GPM counters"
NO_PROBE, BARE = "no counters, no MPS probe", "nvidia-smi alone"

# Why an interval is as wide as it is without the rest of a profile.
_WHY = {
    "naive": "Jobs take turns, so how long each keeps the GPU busy nearly says it all, and "
    "utilisation tells that.",
    "mps": "Utilisation counts time in which any kernel ran, be it on one SM or on all: it does "
    "not tell how many SMs a job leaves to others, nor how long its kernels make them wait.",
    "mps-limits": "Utilisation does not tell how many SMs a job needs, so not what a limit costs "
    "it, nor what its mates take of a bandwidth that no limit divides.",
}


def without_gpm(profile: Profile) -> Profile:
    """`profile` as of a GPU without GPM counters; GRACT stands for the driver's utilisation."""
    counters = profile.counters
    return replace(profile, counters=counters and Counters(source="nvml", gract=counters.gract))


def without_probe(profile: Profile) -> Profile:
    """`profile` without any counters, and not measured under MPS."""
    return replace(profile, counters=None, mps=None)


def watched(profile: Profile) -> Profile:
    """What bare numbers say of the job, GRACT being nvidia-smi's utilisation."""
    share = profile.counters.gract if profile.counters else profile.busy_share
    return MinimalProfile(
        schema=1, workload=profile.name, gpu=profile.gpu, batch_size=profile.workload.batch,
        step_s=profile.step_s, memory_mib=profile.memory.device_mib or 1.0,
        power_w=profile.power_w, gpu_utilization=share, memory_utilization=None,
    ).whole()  # fmt: skip


STRIPPED: Mapping[str, Callable[[Profile], Profile]] = {
    NO_GPM: without_gpm,
    NO_PROBE: without_probe,
    BARE: watched,
}


@dataclass(frozen=True, slots=True)
class UnseenFamilies:
    """What predicts each family's jobs.

    Attributes:
        gpu: The GPU that all runs are of.
        models: By family: the model that saw no run with it.
        play: Replays.
    """

    gpu: Gpu
    models: Mapping[str, Model]
    play: ReplayFunction

    def predictor(self, family: str) -> Predictor:
        """What saw no run with that family."""
        return Predictor(self.gpu, self.models[family], play=self.play)


def predicted_from_less(
    profiles: Mapping[str, Profile], scored: Sequence[Run], by: UnseenFamilies
) -> dict[str, tuple[RunComparison, ...]]:
    """`scored`, predicted from what each of `STRIPPED` leaves of `profiles`.

    Args:
        profiles: Solo profiles by name, whole.
        scored: Those that are predicted.
        by: A model for each family of `scored`.
    """
    return {
        kind: _predicted({name: strip(each) for name, each in profiles.items()}, scored, by)
        for kind, strip in STRIPPED.items()
    }


def _predicted(
    less: Mapping[str, Profile], scored: Sequence[Run], by: UnseenFamilies
) -> tuple[RunComparison, ...]:
    held: Held = {}
    for family in families_of(scored):
        predictor = by.predictor(family)
        for run in scored:
            if family in families_of([run]):
                jobs = compare(run, profiles_of(run, less, "raw"), predictor, by.gpu, {}).jobs
                held |= {(run.id, place): job for place, job in enumerate(jobs)
                         if job.family == family}  # fmt: skip
    return compared_by(held, scored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How good answers are in one mode from what a profile shows; shares of the measured step.

    Attributes:
        profile: What of it: `WHOLE`, or a name of `STRIPPED`.
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


def seen(
    whole: Sequence[RunComparison], less: Mapping[str, Sequence[RunComparison]]
) -> tuple[Seen, ...]:
    """Of each mode one from whole profiles, and one for each kind of `less`."""
    return tuple(
        _seen(mode, profile, jobs)
        for mode in SHARED_MODES
        for profile, runs in ((WHOLE, whole), *less.items())
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
    """How much wider intervals are from less than whole profiles, and why; one line a mode."""
    widths = {(each.mode, each.profile): each.width for each in found}
    return [
        f"**{MODE_WORDS[mode]}**: intervals are {_times_as_wide(widths, mode)} times as wide as "
        f"from whole profiles. {_WHY[mode]}"
        for mode in SHARED_MODES
        if {(mode, WHOLE), (mode, BARE)} <= widths.keys()
    ]


def _times_as_wide(widths: Mapping[tuple[Mode, str], float], mode: Mode) -> str:
    return ", ".join(
        f"{widths[mode, kind] / widths[mode, WHOLE]:.1f} ({kind})"
        for kind in STRIPPED if (mode, kind) in widths
    )  # fmt: skip
