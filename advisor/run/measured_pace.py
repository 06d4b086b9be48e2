"""Corrects a plan by the first second of its jobs' steps: the rest of these, and the next jobs.

**The rest of the plan.** A first window of 0.7 to 1 s predicts the others to 1.3 / 1.5 / 2.0 %
(naive / MPS / MPS limits, mean error), the prediction to 3.2 / 6.3 / 8.4 %: 4,108 steps of drawn
runs on an H200, families left out. A mean of both is better by at most 0.1 points.

**Jobs that run later.** One factor, the host's, is inferred from all jobs, each weighted by the
share of its step that is the host's path. On 4,380 ordered pairs of runs of the same jobs on the
same host within an hour (panels of an H200 and an H100), the other run's steps are then 9.0 / 9.4 %
off under MPS and limits, instead of 9.2 / 10.2 %. The plain mean over all jobs gives 10.2 / 10.6 %;
that over host-bound jobs, applied to these, 10.5 / 10.3 %. Steps under naive sharing get better by
a factor from naive sharing (3.6 to 3.5 %), and worse by one from MPS or limits (3.7 to 4.8 %).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean

from advisor.api import Advisor
from advisor.errors import counted
from advisor.launch.plan_file import SavedPlan, step_range
from advisor.learn.scores import RunComparison
from advisor.measure.pace import mean_step_s
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.values import Forecast
from advisor.prediction.host import host_path_s, is_gpu_bound
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import (
    LEVELS,
    Interval,
    JobPrediction,
    MixPrediction,
    all_known,
)
from advisor.run.watched_job import around_first
from advisor.run.watched_run import Remaining, WatchedRun
from advisor.sharing import Sharing
from advisor.sharing.groups import groups, left_of, running_together
from advisor.workload.job import Job
from advisor.workload.plan_document import StepRange
from advisor.workload.profile import Profile

# Weight of "the host is as predicted" among the jobs' squared shares.
_AS_PREDICTED = 1.0


def host_share(profile: Profile, step_s: float) -> float:
    """Return the share of a step of `step_s` in a mix that the host's path alone takes."""
    return min(1.0, host_path_s(profile) / step_s)


def infer_host_factor(
    profiles: Sequence[Profile], predicted_s: Sequence[float], measured_s: Sequence[float]
) -> float:
    """Infer how many times as long the host takes as predicted; entries are of the jobs of a mix.

    Least squares over the jobs' log(measured / predicted), each proportional to its host share.
    """
    shares = list(map(host_share, profiles, predicted_s))
    weighted = sum(
        share * log(measured / predicted)
        for share, measured, predicted in zip(shares, measured_s, predicted_s, strict=True)
    )
    return exp(weighted / (sum(share**2 for share in shares) + _AS_PREDICTED))


def rest_of_run(profile: Profile, first_s: float) -> Interval:
    """Return the steps to expect of a job whose steps took `first_s` in its first second."""
    steps = around_first(first_s, gpu_bound=is_gpu_bound(profile))
    return Interval(steps.p05, steps.p50, steps.p95)


@dataclass(frozen=True, slots=True)
class FirstSecond:
    """The first second of steady steps of the jobs at some positions of a plan.

    Attributes:
        steps_s: By position; a job that does not count its steps is missing.
        power_w: Mean of the whole GPU; None: not measured.
    """

    running: tuple[int, ...]
    steps_s: Mapping[int, float]
    power_w: float | None = None

    def among(self, positions: Sequence[int]) -> "FirstSecond":
        """Return it with positions counted among `positions`; of no job, if one has ended."""
        if not {*self.running} <= {*positions}:
            return replace(self, running=(), steps_s={})
        at = {position: number for number, position in enumerate(positions)}
        steps_s = {at[position]: step_s for position, step_s in self.steps_s.items()}
        return replace(self, running=tuple(at[each] for each in self.running), steps_s=steps_s)


class CorrectedMixes(Mixes):
    """Mixes of `jobs` after a second of one of them: that one as measured, others by the host."""

    def __init__(
        self, jobs: Sequence[Job], predictor: Predicts, first: FirstSecond, factor: float
    ) -> None:
        super().__init__(jobs, predictor)
        self._first, self._factor = first, factor

    def part(self, sharing: Sharing, running: tuple[int, ...]) -> MixPrediction:
        """Predict as `Mixes.part`."""
        mix, first = super().part(sharing, running), self._first
        measured, jobs, power_w = running == first.running, list[JobPrediction](), mix.power_w
        for at, job in zip(running, mix.jobs, strict=True):
            profile = self.jobs[at].profile
            if not measured:
                jobs.append(job.longer(self._factor ** host_share(profile, job.step_s.p50)))
            elif at in first.steps_s:
                jobs.append(_as_measured(job, rest_of_run(profile, first.steps_s[at])))
            else:
                jobs.append(job)
        if measured and power_w is not None and first.power_w is not None:
            power_w = power_w.scaled(first.power_w / power_w.p50)
        return replace(mix, jobs=tuple(jobs), power_w=power_w)


def _as_measured(job: JobPrediction, step_s: Interval) -> JobPrediction:
    longer = replace(job.longer(step_s.p50 / job.step_s.p50), slowdown_error=None)
    return longer.mapped(lambda time: step_s.scaled(time.p50 / step_s.p50))


def _sum(values: Sequence[Interval]) -> Interval:
    """Add numbers whose errors are fully correlated."""
    return Interval(*(sum(each.at(level) for each in values) for level in LEVELS))


class PacedPlan:
    """A plan that is watched: its predictions, corrected by the first second of its steps.

    Args:
        saved: The plan.
        advisor: Under the plan's power cap.
    """

    def __init__(self, saved: SavedPlan, advisor: Advisor) -> None:
        self._saved, self._advisor = saved, advisor
        self._mixes = Mixes(saved.jobs, advisor.predictor)
        self._groups = [frozenset(g) for g in running_together(saved.sharing, len(saved.jobs))]
        self._at = {number: at for at, number in enumerate(saved.numbers)}
        self._first: FirstSecond | None = None
        self._factor = 1.0

    def _positions(self, running: frozenset[int]) -> tuple[int, ...]:
        """Positions of the jobs `running` if they are of one group; else none."""
        positions = tuple(sorted(self._at[number] for number in running))
        return positions if any(group.issuperset(positions) for group in self._groups) else ()

    def expected(
        self, running: frozenset[int], first_s: Mapping[int, float]
    ) -> Mapping[int, StepRange]:
        """Return steps to expect, as `advisor.run.watched_run.Expected`."""
        if not (positions := self._positions(running)):
            return {}
        mix = self._mixes.part(self._saved.sharing, positions)
        steps = {
            self._saved.numbers[at]: step_range(job.step_s)
            for at, job in zip(positions, mix.jobs, strict=True)
        }
        for number, step_s in first_s.items():
            profile = self._saved.jobs[self._at[number]].profile
            steps[number] = step_range(rest_of_run(profile, step_s))
        return steps

    def correct(self, run: WatchedRun) -> None:
        """Correct the plan by the first second of `run`, and note how long the run still takes."""
        positions = self._positions(run.events.running)
        if positions and run.first_s:
            steps_s = {self._at[number]: step_s for number, step_s in run.first_s.items()}
            self._first = FirstSecond(positions, steps_s, run.power_w)
            mix = self._mixes.part(self._saved.sharing, positions)
            predicted_s = {at: j.step_s.p50 for at, j in zip(positions, mix.jobs, strict=True)}
            self._factor = infer_host_factor(
                [self._saved.jobs[at].profile for at in steps_s],
                [predicted_s[at] for at in steps_s],
                list(steps_s.values()),
            )
        run.remaining = self._remaining([job.left_share for job in run.jobs])

    def _remaining(self, left: Sequence[float | None]) -> Remaining | None:
        """Return what the jobs still need, by the share of each job's work that is left."""
        shares = all_known(left)
        if shares is None or self._first is None:
            return None
        rests, all_jobs = list[Forecast](), self._saved.jobs
        for group in groups(self._saved.sharing, len(all_jobs)):
            if positions := [job - 1 for job in sorted(group.jobs) if shares[job - 1] > 0]:
                jobs = [
                    replace(all_jobs[at], epochs=all_jobs[at].epochs * shares[at])
                    for at in positions
                ]
                first = self._first.among(positions)
                mixes = CorrectedMixes(jobs, self._advisor.predictor, first, self._factor)
                rests.append(forecast(mixes, left_of(group, positions)))
        seconds = all_known(rest.makespan_interval_s for rest in rests)
        energy_j = all_known(rest.energy_j for rest in rests)
        if not seconds:
            return None
        return Remaining(step_range(_sum(seconds)), _sum(energy_j).p50 if energy_j else None)


@dataclass(frozen=True, slots=True)
class RunCorrection:
    """The rest of a run as its first window shows it; entries are of its jobs.

    Attributes:
        host_factor: See `infer_host_factor`.
        rest_s: Expected by the first window, and measured in the others; empty if there are none.
        by_host_s: Predicted, and corrected by the host factor of the run before, if that had the
            same jobs; empty otherwise.
    """

    host_factor: float
    rest_s: tuple[tuple[Interval, float], ...]
    by_host_s: tuple[Interval, ...]


def corrected_by_first(
    comparisons: Sequence[RunComparison], profiles: Mapping[str, Profile]
) -> tuple[RunCorrection, ...]:
    """Correct the rest of each run by its first window, and a run by that of the one before."""
    corrections: list[RunCorrection] = []
    for at, comparison in enumerate(comparisons):
        alone = [profiles[name] for name in comparison.run.names]
        windows = [tenant.windows for tenant in comparison.run.tenants]
        first_s = [mean_step_s(each[:1]) for each in windows]
        predicted_s = [job.predicted_s for job in comparison.jobs]
        rest_s = tuple(
            (rest_of_run(profile, step_s), mean_step_s(each[1:]))
            for profile, step_s, each in zip(alone, first_s, windows, strict=True)
            if len(each) > 1
        )
        by_host_s: tuple[Interval, ...] = ()
        if at and comparison.run.names == comparisons[at - 1].run.names:
            pairs = zip(alone, predicted_s, strict=True)
            factor = corrections[-1].host_factor
            by_host_s = tuple(s.scaled(factor ** host_share(p, s.p50)) for p, s in pairs)
        factor = infer_host_factor(alone, [each.p50 for each in predicted_s], first_s)
        corrections.append(RunCorrection(factor, rest_s, by_host_s))
    return tuple(corrections)


def correction_notes(
    comparisons: Sequence[RunComparison], corrections: Sequence[RunCorrection]
) -> Iterator[str]:
    """Return how good the `corrections` of `comparisons` were, a sentence each."""
    rests = [pair for each in corrections for pair in each.rest_s]
    if rests:
        off = fmean(abs(expected.p50 / measured - 1) for expected, measured in rests)
        inside = sum(expected.contains(measured) for expected, measured in rests)
        yield (
            f"The first window of each run predicts the others: {off:.1%} off in the mean, "
            f"{inside} of {counted(len(rests), 'step')} in their intervals."
        )
    by_host = [
        (abs(job.error), abs(step_s.p50 / job.measured_s - 1))
        for run, each in zip(comparisons, corrections, strict=True)
        for job, step_s in zip(run.jobs, each.by_host_s, strict=False)
    ]
    if by_host:
        raw, corrected = (fmean(errors) for errors in zip(*by_host, strict=True))
        yield (
            f"The host factor of the run before changes the mean error of the later runs from "
            f"{raw:.1%} to {corrected:.1%}."
        )
