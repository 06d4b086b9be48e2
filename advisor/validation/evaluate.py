"""How far predictions are off for model families that the model never saw.

For each family F the model is fitted, tuned and calibrated on the runs without any tenant of F;
then F's jobs are scored, once in every scored run that contains F. Scored are the runs that a
seed drew before anything was predicted, never those that a person or a model chose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from advisor.errors import InvalidInput
from advisor.gpu.catalogue import Gpu
from advisor.prediction.fit import fit
from advisor.prediction.observation import Playback
from advisor.prediction.predictor import Predictor
from advisor.validation.baselines import baselines
from advisor.validation.comparison import JobComparison, RunComparison, compare
from advisor.workload.profile import Profile
from advisor.workload.run import Run

SPLIT = "leave-one-family-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far solo runs between the shared ones lie from the profiles, as shares.

    Attributes:
        n: Solo runs.
        median: Median absolute difference.
        worst: Largest absolute difference.
        worst_job: Whose it is.
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
        families: Families left out, one after another.
        runs: In the order of the files.
        repeats: Pairs of a scored run and its repeat with fresh workers.
        unusable: Drawn runs that could not be scored: a tenant ended early or has no profile.
        drift: None where no solo run lies between the shared ones.
    """

    gpu: str
    families: tuple[str, ...]
    runs: tuple[RunComparison, ...]
    repeats: tuple[tuple[Run, Run], ...]
    unusable: tuple[str, ...]
    drift: Drift | None


@dataclass(frozen=True, slots=True)
class _Folds:
    """The data, to be seen again and again with one family left out.

    Attributes:
        playback: What replay says of a run under given constants is the same in each fold.
    """

    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    gpu: Gpu
    playback: Playback

    def score(self, family: str, scored: Sequence[Run]) -> dict[tuple[str, int], JobComparison]:
        """The jobs of `family` by run and place in it, predicted by a model that never saw any."""
        seen = {name: p for name, p in self.profiles.items() if p.workload.family != family}
        runs = [run for run in self.runs if family not in _families(run)]
        model = fit(seen, runs, self.gpu, self.playback)
        predictor, rivals = Predictor(self.gpu, model), baselines(model.physics)
        return {
            (run.id, place): job
            for run in scored
            if family in _families(run)
            for place, job in enumerate(
                compare(run, self.profiles, predictor, self.gpu, rivals).jobs
            )
            if run.tenants[place].workload.family == family
        }


def evaluate(profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu) -> Evaluation:
    """Score each family's jobs with a model that was fitted without that family.

    Args:
        profiles: Solo profiles by name.
        runs: Every run on `gpu`.
        gpu: The GPU that all of them ran on.

    Raises:
        InvalidInput: No run can be scored.
    """
    drawn = [run for run in runs if run.purpose == "drawn" and len(run.tenants) > 1]
    scored = [run for run in drawn if _usable(run, profiles)]
    if not scored:
        raise InvalidInput(
            f"{gpu.key}: no run to score. Wanted are drawn runs whose tenants all "
            f"ran to the end and have profiles; {len(runs)} runs were read."
        )
    families = tuple(sorted({family for run in scored for family in _families(run)}))
    folds = _Folds(profiles, runs, gpu, Playback(gpu))
    held_out: dict[tuple[str, int], JobComparison] = {}
    for family in families:
        held_out |= folds.score(family, scored)
    return Evaluation(
        gpu=gpu.key,
        families=families,
        runs=tuple(
            RunComparison(run, tuple(held_out[run.id, i] for i in range(len(run.tenants))))
            for run in scored
        ),
        repeats=_repeats(scored, runs),
        unusable=tuple(run.id for run in drawn if not _usable(run, profiles)),
        drift=_drift(profiles, runs),
    )


def _usable(run: Run, profiles: Mapping[str, Profile]) -> bool:
    return run.ok and all(tenant.workload.name in profiles for tenant in run.tenants)


def _families(run: Run) -> set[str]:
    return {tenant.workload.family for tenant in run.tenants}


def _repeats(scored: Sequence[Run], runs: Sequence[Run]) -> tuple[tuple[Run, Run], ...]:
    by_id = {run.id: run for run in scored}
    return tuple((by_id[run.repeats], run) for run in runs if run.ok and run.repeats in by_id)


def _drift(profiles: Mapping[str, Profile], runs: Sequence[Run]) -> Drift | None:
    """How much pace alone moved between profiling and the runs."""
    solo = [run for run in runs if run.purpose == "solo" and _usable(run, profiles)]
    apart = [
        (abs(tenant.step_s / profiles[tenant.workload.name].step_s - 1), tenant.workload.name)
        for run in solo
        for tenant in run.tenants
    ]
    if not apart:
        return None
    worst, worst_job = max(apart)
    middle = median(difference for difference, _ in apart)
    return Drift(n=len(apart), median=middle, worst=worst, worst_job=worst_job)
