"""Learns from the user's own runs the pace of each job: of its host, and beside others."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median
from typing import Literal

from advisor.learn.observations import MeasuredGpu
from advisor.prediction.capacity import is_gpu_bound
from advisor.prediction.host import log_beyond_host
from advisor.prediction.mix_steps import Predicts, SurrogatePredictor
from advisor.prediction.model import Model, OwnPace, OwnStep, at_own_pace, date_of, step_of
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.prediction.predictor import Predictor
from advisor.sharing import Arrangement, Mode, parse_sharing
from advisor.sharing.groups import together, without_idle_limits
from advisor.workload.profile import Profile
from advisor.workload.run import Run

Part = Literal["host"] | Mode
"""What a run shows of a job: its host's pace, or its steps where it shares a GPU that it fills."""

# The host sets the pace where a step is predicted to be this close to the host's path, in logs.
_HOST_BOUND = 0.1

# Of runs that a profile counts as: with as many runs of one's own, the truth is taken to lie in the
# middle. Of 0, 1 and 3, 1 was best, though by little, where each run is
# predicted with those before it that day.
_PROFILE_COUNTS = 1

# The ways to share in which runs teach a job's steps. Time slicing, of which predictions of such
# jobs err by 1 % once fitted to these runs, is predicted no better, and outside more often.
_TAUGHT: tuple[Mode, ...] = ("mps", "mps-limits")

# The same of runs that a prediction of jobs together counts as. Of 1, 3, 6 and 10, 3 was best,
# though by little, where runs of an H200 are predicted with those before them by models that never
# saw the family: MAPE of 5.0 % under MPS and 5.5 % under limits fell to 4.0 and 4.6 %. With one
# factor for both it fell to 4.5 and 4.9 %. Where the model is fitted to the same runs, less is left
# to learn.
_PREDICTION_COUNTS = 3


def with_own_paces(model: Model, everyone: Iterable[MeasuredGpu]) -> Model:
    """`model` with what the users' own runs among those of `everyone` say of their jobs' pace."""
    found = {
        each.gpu.key: own_paces(each.profiles, each.own, Predictor(each.gpu, model))
        for each in everyone
    }
    return replace(model, own_paces={key: paces for key, paces in found.items() if paces})


def own_paces(
    profiles: Mapping[str, Profile], runs: Iterable[Run], predictor: Predictor
) -> dict[str, OwnPace]:
    """By name: what `runs` say of the jobs in them.

    Args:
        profiles: By name; runs of other workloads are skipped.
        runs: All on the GPU of `predictor`; those on MIG instances and in groups are skipped.
        predictor: Of hosts as fast as those of the profiles.
    """
    shown: dict[str, dict[Part, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for (name, part), behind in behind_in(run, profiles, predictor).items():
            shown[name][part].append(behind)
    return {name: pace_by(each, profiles[name]) for name, each in shown.items()}


def pace_by(shown: Mapping[Part, Sequence[float]], profile: Profile) -> OwnPace:
    """What runs say of `profile`; of each, how far it was behind there, as of `behind_in`."""
    host = shown.get("host", ())
    return OwnPace(
        slowdown=_drawn(host, _PROFILE_COUNTS) if host else 1.0, runs=len(host),
        profiled=date_of(profile),
        beside={
            mode: OwnStep(factor=_drawn(logs, _PREDICTION_COUNTS), runs=len(logs))
            for mode in _TAUGHT if (logs := shown.get(mode))
        },
    )  # fmt: skip


def _drawn(logs: Sequence[float], before: int) -> float:
    """The factor that `logs` show, drawn to 1 as by `before` runs."""
    return exp(median(logs) * len(logs) / (len(logs) + before))


def behind_in(
    run: Run, profiles: Mapping[str, Profile], predictor: Predictor
) -> dict[tuple[str, Part], float]:
    """By name and what it shows: log of measured over predicted step, median of copies."""
    names = [tenant.workload.name for tenant in run.tenants]
    sharing = together(parse_sharing(run.sharing))
    if not run.shows_pace or sharing is None or any(name not in profiles for name in names):
        return {}
    mode = without_idle_limits(sharing).mode if len(names) > 1 else None
    jobs = predictor.predict([profiles[name] for name in names], sharing).jobs
    found: dict[tuple[str, Part], list[float]] = defaultdict(list)
    for name, tenant, job in zip(names, run.tenants, jobs, strict=True):
        if (part := part_shown(profiles[name], job.step_s.p50, mode)) is not None:
            found[name, part].append(log(tenant.step_s / job.step_s.p50))
    return {key: median(each) for key, each in found.items()}


def part_shown(profile: Profile, step_s: float, mode: Mode | None) -> Part | None:
    """What a step predicted to take `step_s` shows of a job; `mode`: None where it is alone."""
    if profile.host_s is None:  # of bare numbers, which do not say what the host does
        return None
    if log_beyond_host(profile, step_s) < _HOST_BOUND:
        return "host"
    return mode if mode in _TAUGHT and is_gpu_bound(profile) else None


@dataclass(frozen=True, slots=True)
class PacedPredictor:
    """Predicts as `predictor` does, each job as fast as in the runs behind `paces`.

    A job's slowdown is relative to the job alone at that pace. What runs showed of its steps beside
    others lengthens or shortens its own alone: its mates have factors of their own.
    """

    predictor: Predicts
    paces: Mapping[str, OwnPace]

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `advisor.prediction.predictor.Predictor.predict`."""
        mix = self.predictor.predict(self._paced(profiles), sharing)
        mode = without_idle_limits(sharing).mode
        own = [step_of(each, self.paces, mode) for each in profiles]
        if len(profiles) == 1 or not any(own):
            return mix
        jobs = tuple(map(_as_beside_others, mix.jobs, own))
        return replace(mix, jobs=jobs, weighted_speedup=sum(1 / job.slowdown for job in jobs))

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """As of `Predictor`, without factors on steps: what it finds is predicted with them."""
        return self.predictor.surrogate(self._paced(profiles))

    def _paced(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        return tuple(at_own_pace(each, self.paces) for each in profiles)


def _as_beside_others(job: JobPrediction, own: OwnStep | None) -> JobPrediction:
    """`job` with the steps that `own` tells of.

    A GPU as full as before draws as much power, so energy grows with the step.
    """
    if own is None:
        return job
    by = own.factor_at(job.slowdown)

    def longer(value: Interval | None) -> Interval | None:
        return None if value is None else value.scaled(by)

    return replace(
        job,
        step_s=job.step_s.scaled(by),
        epoch_s=longer(job.epoch_s),
        slowdown=job.slowdown * by,
        energy_step_j=longer(job.energy_step_j),
        energy_epoch_j=longer(job.energy_epoch_j),
        energy_example_j=longer(job.energy_example_j),
    )
