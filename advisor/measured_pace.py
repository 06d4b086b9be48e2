"""Corrects a plan by the first second of its jobs' steps: its rest, and other plans on this host.

**The rest of the plan.** A first window of 0.7 to 1 s predicts the others to 1.3 / 1.5 / 2.0 %
(naive / MPS / MPS limits, mean error), the prediction to 3.2 / 6.3 / 8.4 %: 4,108 steps of drawn
runs on an H200, families left out. A mean of both is better by at most 0.1 points.

**Other plans.** One factor, the host's, is inferred from all jobs, each weighted by the share of
its step that is the host's path. On 4,380 ordered pairs of runs of the same jobs on the same host
within an hour (panels of an H200 and an H100), the other run's steps are then 9.0 / 9.4 % off under
MPS and limits, instead of 9.2 / 10.2 %. The plain mean over all jobs gives 10.2 / 10.6 %; that over
host-bound jobs, applied to these, 10.5 / 10.3 %. Steps under naive sharing get better by a factor
from naive sharing (3.6 to 3.5 %), and worse by one from MPS or limits (3.7 to 4.8 %).

**Choices.** In 2,229 of the pairs of two ways to share, or of two settings of limits, the second
was predicted to be no better. By the first second it is better beyond the error of both in 9, and 8
were, by 21 % in the mean of the 9; without the factor in 142, and 88 were; with a factor that
leaves naive sharing out, in 50, and 27 were.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import exp, log
from statistics import fmean
from typing import cast

from advisor.api import Advisor
from advisor.errors import AdvisorError, counted
from advisor.launch.launch_plan import LaunchPlan
from advisor.launch.plan_file import SavedPlan, prepare, step_range
from advisor.learn.scores import RunComparison
from advisor.measure.pace import mean_step_s
from advisor.plan import ObjectiveName, check_objective
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import known_cost, rankable_by, tied
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
from advisor.sharing import Arrangement, Sharing, parse_sharing
from advisor.sharing.groups import groups, left_of, restricted, running_together
from advisor.watched_job import around_first
from advisor.watched_run import Remaining, WatchedRun
from advisor.workload.job import Job
from advisor.workload.plan_document import StepRange
from advisor.workload.profile import Profile

# Weight of "the host is as predicted" among the jobs' squared shares. On the same pairs MPS and
# limits are 8.8 / 9.4 % off with 2; but then 31 plans are called better, of which 17 were.
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


def on_measured_host(
    mix: MixPrediction, profiles: Sequence[Profile], factor: float
) -> MixPrediction:
    """Correct `mix` for a host of that `factor`, which was inferred from another plan."""
    pairs = zip(mix.jobs, profiles, strict=True)
    return _with_jobs(
        mix, [job.longer(factor ** host_share(profile, job.step_s.p50)) for job, profile in pairs]
    )


def _with_jobs(mix: MixPrediction, jobs: Sequence[JobPrediction]) -> MixPrediction:
    serial = mix.sharing.mode == "serial"
    speedup = mix.weighted_speedup if serial else sum(1 / job.slowdown for job in jobs)
    return replace(mix, jobs=tuple(jobs), weighted_speedup=speedup)


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
    sharing: Arrangement
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
        profiles = [self.jobs[at].profile for at in running]
        if (running, restricted(sharing, running)) != (first.running, first.sharing):
            return on_measured_host(mix, profiles, self._factor)
        jobs = []
        for at, job, profile in zip(running, mix.jobs, profiles, strict=True):
            step_s = first.steps_s.get(at)
            jobs.append(job if step_s is None else _as_measured(job, rest_of_run(profile, step_s)))
        power_w = mix.power_w
        if power_w is not None and first.power_w is not None:
            power_w = power_w.scaled(first.power_w / power_w.p50)
        return _with_jobs(replace(mix, power_w=power_w), jobs)


def _as_measured(job: JobPrediction, step_s: Interval) -> JobPrediction:
    longer = replace(job.longer(step_s.p50 / job.step_s.p50), slowdown_error=None)
    return longer.mapped(lambda time: step_s.scaled(time.p50 / step_s.p50))


@dataclass(frozen=True, slots=True)
class CorrectedPlan:
    """A plan that runs, corrected by the first second of its steps.

    Attributes:
        jobs: All jobs of the plan.
        factor: The host's, see `infer_host_factor`.
    """

    jobs: tuple[Job, ...]
    sharing: Sharing
    first: FirstSecond
    factor: float

    def forecast(self, predictor: Predicts, sharing: Sharing) -> Forecast:
        """Forecast all jobs from their first step, under `sharing` of this or of another plan."""
        return forecast(CorrectedMixes(self.jobs, predictor, self.first, self.factor), sharing)

    def remaining(
        self, predictor: Predicts, left: Sequence[float | None]
    ) -> tuple[Interval, Interval | None] | None:
        """Return the seconds until the last job ends, and the joules until then, if known.

        Args:
            predictor: Of the plan.
            left: Share of each job's work that is left; None: not known.
        """
        if (shares := all_known(left)) is None:
            return None
        rests = []
        for group in groups(self.sharing, len(self.jobs)):
            if positions := [job - 1 for job in sorted(group.jobs) if shares[job - 1] > 0]:
                epochs = [self.jobs[at].epochs * shares[at] for at in positions]
                jobs = [
                    replace(self.jobs[at], epochs=e)
                    for at, e in zip(positions, epochs, strict=True)
                ]
                mixes = CorrectedMixes(jobs, predictor, self.first.among(positions), self.factor)
                rests.append(forecast(mixes, left_of(group, positions)))
        seconds = all_known(rest.makespan_interval_s for rest in rests)
        energy_j = all_known(rest.energy_j for rest in rests)
        return (_sum(seconds), _sum(energy_j) if energy_j else None) if seconds else None


def _sum(values: Sequence[Interval]) -> Interval:
    """Add numbers whose errors are fully correlated."""
    return Interval(*(sum(each.at(level) for each in values) for level in LEVELS))


def corrected_plan(mixes: Mixes, sharing: Sharing, first: FirstSecond) -> CorrectedPlan:
    """Correct the plan of all jobs of `mixes` under `sharing` by its `first` second."""
    jobs = dict(zip(first.running, mixes.part(sharing, first.running).jobs, strict=True))
    factor = infer_host_factor(
        [mixes.jobs[at].profile for at in first.steps_s],
        [jobs[at].step_s.p50 for at in first.steps_s],
        list(first.steps_s.values()),
    )
    return CorrectedPlan(mixes.jobs, sharing, first, factor)


@dataclass(frozen=True, slots=True)
class BetterPlan:
    """A plan that costs less than the one that runs, beyond the error of both."""

    plan: LaunchPlan
    objective: ObjectiveName
    gain: float


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
        self._corrected: CorrectedPlan | None = None
        self._compared = False

    def _positions(self, running: frozenset[int]) -> tuple[int, ...]:
        """Positions of the jobs `running` if they are of one group; else none."""
        positions = tuple(sorted(self._at[number] for number in running))
        return positions if any(group.issuperset(positions) for group in self._groups) else ()

    def expected(
        self, running: frozenset[int], first_s: Mapping[int, float]
    ) -> Mapping[int, StepRange]:
        """Return steps to expect, as `advisor.watched_run.Expected`."""
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
        positions, sharing = self._positions(run.events.running), self._saved.sharing
        if positions and run.first_s:
            steps_s = {self._at[number]: step_s for number, step_s in run.first_s.items()}
            first = FirstSecond(positions, restricted(sharing, positions), steps_s, run.power_w)
            self._corrected = corrected_plan(self._mixes, sharing, first)
        run.remaining = None
        if self._corrected is not None:
            left = [job.left_share for job in run.jobs]
            rest = self._corrected.remaining(self._advisor.predictor, left)
            if rest is not None:
                seconds, energy_j = rest
                run.remaining = Remaining(step_range(seconds), energy_j.p50 if energy_j else None)

    def better(self, run: WatchedRun) -> BetterPlan | None:
        """Return the best-ranked other plan if it is better; compares once, from the first step.

        That is when a second of all jobs that run at first has been measured.
        """
        saved, other, corrected = self._saved, self._saved.other, self._corrected
        if other is None or corrected is None or self._compared:
            return None
        if run.first_s.keys() != run.events.running:
            return None
        self._compared = True
        check_objective(other.objective)
        predictor = self._advisor.predictor_under(other.power_cap_w)
        plans = (
            corrected.forecast(self._advisor.predictor, saved.sharing),
            corrected.forecast(predictor, parse_sharing(other.sharing)),
        )
        objective, _ = rankable_by(plans, cast("ObjectiveName", other.objective))
        cost, instead = (known_cost(each, objective) for each in plans)
        if instead.p50 >= cost.p50 or tied(*plans, objective):
            return None
        planned = replace(
            saved, sharing=plans[1].sharing, power_cap_w=other.power_cap_w, other=None
        )
        with suppress(AdvisorError):  # what cannot be started is not better
            plan = prepare(planned, self._advisor.card, plans[1].prediction)
            return BetterPlan(plan, objective, 1 - instead.p50 / cost.p50)
        return None


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
