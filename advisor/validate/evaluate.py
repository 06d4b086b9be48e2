"""Scores predictions for model families that the model was not fitted to.

For each family F the model is fitted, tuned and calibrated on the runs without any tenant of F;
then F's jobs are scored, once in every scored run that contains F. The panels of plans are
predicted in the same way, so a choice from them is one by models that saw no run of those jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.model_file import Model
from advisor.validate.folds import Folds, Tell, compared_by, held_out
from advisor.validate.predicted_and_measured import RunComparison
from advisor.validate.selection import Selection, cores_known, families_of, select
from advisor.workload.profile import Profile
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Differences between profiles and the solo runs among shared ones, as shares.

    Attributes:
        n: Solo runs.
        median: Median absolute difference.
        worst: Largest absolute difference.
        worst_job: Job with the largest difference.
    """

    n: int
    median: float
    worst: float
    worst_job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every scored run, each of its jobs predicted without that job's family.

    Attributes:
        gpu: Catalogue key.
        families: Of the scored jobs; left out one after another.
        runs: Scored runs in the order of the files, predicted from profiles as measured, which is
            what users have.
        repeats: Pairs of a scored run and its repeat with fresh workers.
        unusable: Ids of drawn runs that could not be scored; see `selection.Selection`.
        drift: None if no solo run lies between the shared ones.
        advice: Runs of advice, predicted in the same way: never scored, but plans are chosen from
            them.
        adjusted: Those of `runs` that recorded the speed of each tenant's core, predicted again
            from profiles converted to these cores; empty for predictions from a file.
        alone: Runs of one tenant.
        profiles: Profiles of all tenants, by name.
        intervals: Whether the predictions have intervals.
        models: By family: the model fitted without it; empty for predictions from a file.
    """

    gpu: str
    families: tuple[str, ...]
    runs: tuple[RunComparison, ...]
    repeats: tuple[tuple[Run, Run], ...]
    unusable: tuple[str, ...]
    drift: Drift | None
    advice: tuple[RunComparison, ...] = ()
    adjusted: tuple[RunComparison, ...] = ()
    alone: tuple[Run, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    intervals: bool = True
    models: Mapping[str, Model] = field(default_factory=dict)


def evaluate(
    profiles: Mapping[str, Profile],
    runs: Sequence[Run],
    gpu: Gpu,
    processes: int = 1,
    playback: ReplayCache | None = None,
    tell: Tell | None = None,
) -> Evaluation:
    """Score each family's jobs with a model that was fitted without that family.

    Args:
        profiles: Solo profiles by name.
        runs: Every run on `gpu`.
        gpu: The GPU that all of them ran on.
        processes: Number of processes for the fits; the result does not depend on it.
        playback: Cached replays, if other callers need the same ones.
        tell: Called with the number of families done and the number of all.

    Raises:
        InvalidInput: No run can be scored.
    """
    chosen = select(profiles, runs, gpu)
    wanted = (*chosen.scored, *chosen.advice)
    on_cores = tuple(filter(cores_known, chosen.scored))
    folds = Folds(profiles, runs, wanted, on_cores, gpu, playback or ReplayCache())
    held = held_out(folds, processes, tell)
    scored, advice = (compared_by(held.raw, part) for part in (chosen.scored, chosen.advice))
    found = evaluation_of(chosen, profiles, scored, advice)
    return replace(found, adjusted=compared_by(held.adjusted, on_cores), models=held.models)


def evaluation_of(
    chosen: Selection,
    profiles: Mapping[str, Profile],
    scored: tuple[RunComparison, ...],
    advice: tuple[RunComparison, ...],
    intervals: bool = True,
) -> Evaluation:
    """The source of the predictions in `scored` and `advice`, with its description."""
    return Evaluation(
        gpu=chosen.scored[0].gpu,
        families=families_of(chosen.scored),
        runs=scored,
        repeats=chosen.repeats,
        unusable=chosen.unusable,
        drift=_drift(profiles, chosen.alone),
        advice=advice,
        alone=chosen.alone,
        profiles=profiles,
        intervals=intervals,
    )


def _drift(profiles: Mapping[str, Profile], alone: Sequence[Run]) -> Drift | None:
    """How much pace alone moved between profiling and the runs."""
    apart = [
        (abs(tenant.step_s / profiles[tenant.workload.name].step_s - 1), tenant.workload.name)
        for run in alone
        if run.purpose == "solo"
        for tenant in run.tenants
    ]
    if not apart:
        return None
    worst, worst_job = max(apart)
    middle = median(difference for difference, _ in apart)
    return Drift(n=len(apart), median=middle, worst=worst, worst_job=worst_job)
