"""The regret of choices, the model's and those of rules, in measured throughput.

Choices are made from profiles as they were measured, and one after another is as fast as the solo
runs made beside the others: both as a user has it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from os.path import commonprefix
from statistics import mean
from typing import Any

import numpy as np

from advisor.learn.baselines import CHOOSERS, Chooser, Offer
from advisor.learn.evaluate import ALL, BOUNDS, Bound, Drift, Evaluation, Jobs, ScoreRow, hosts_of
from advisor.learn.scores import (
    JobComparison,
    RunComparison,
    View,
    coverage_of,
    mean_width,
    noise_of,
    runs_of_mode,
    sharing_of,
    throughput_noise,
)
from advisor.prediction.capacity import is_gpu_bound
from advisor.prediction.prediction import all_known
from advisor.sharing import SHARED_MODES, Mode, Serial, Sharing
from advisor.workload.profile import Profile
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOption:
    """One way in which a job set was run; throughput is the sum of solo over shared steps.

    Attributes:
        measured: Mean over all times it was run, so that no single lucky run sets the mark.
        times: How often that was.
        predicted: By the evaluated model.
        baselines: By each baseline; None if it is not defined.
    """

    sharing: Sharing
    measured: float
    times: int
    predicted: float
    baselines: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Panel:
    """The ways in which one job set was run, serial first.

    Attributes:
        jobs: Names with counts, as the command line takes them; limits follow this order.
        names: Names of the jobs, in order.
    """

    jobs: str
    names: tuple[str, ...]
    options: tuple[PanelOption, ...]

    @property
    def best_measured(self) -> float:
        """Highest measured throughput, serial included."""
        return max(option.measured for option in self.options)

    @property
    def spread(self) -> float:
        """Share by which the worst throughput is below the best."""
        return 1 - min(option.measured for option in self.options) / self.best_measured

    @property
    def lead(self) -> float:
        """Share by which the second best throughput is below the best."""
        next_best, best = sorted(option.measured for option in self.options)[-2:]
        return 1 - next_best / best

    @property
    def regret_at_random(self) -> float:
        """Mean regret of a random choice."""
        return 1 - mean(option.measured for option in self.options) / self.best_measured

    @property
    def regret(self) -> float:
        """Share of the best throughput that the model's choice gives away, 0..1."""
        return self._given_away([option.predicted for option in self.options])

    def regret_by(self, baseline: str) -> float | None:
        """Regret of the choice by a baseline's steps; None if it is not defined for all ways."""
        known = all_known(option.baselines[baseline] for option in self.options)
        return None if known is None else self._given_away(known)

    def regret_of(self, sharing: Sharing) -> float:
        """Regret of choosing `sharing`, which is one of the options."""
        chosen = next(option for option in self.options if option.sharing == sharing)
        return 1 - chosen.measured / self.best_measured

    def _given_away(self, predicted: Sequence[float]) -> float:
        """Of several options predicted alike any may be chosen: the mean over them."""
        tied = [
            option.measured
            for option, each in zip(self.options, predicted, strict=True)
            if each == max(predicted)
        ]
        return 1 - mean(tied) / self.best_measured


def panels(comparisons: Iterable[RunComparison], alone: Sequence[Run] = ()) -> tuple[Panel, ...]:
    """Shared runs by job set, in the order in which the sets were first run.

    Args:
        comparisons: Runs of advice; one sharing may have been run several times.
        alone: Runs of one tenant. Those of advice whose id begins as the ids of a set's runs do
            are how the set ran one after another, and so are the solo runs of its campaign, there
            and where that was run once more: alone, a job runs the same for every set. A job
            without either ran as in its profile.
    """
    sets: dict[tuple[str, ...], list[RunComparison]] = {}
    for comparison in comparisons:
        if len(comparison.jobs) > 1:
            sets.setdefault(tuple(job.job for job in comparison.jobs), []).append(comparison)
    return tuple(
        Panel(counted_names(names), names, (_serial(runs, alone), *_options(runs)))
        for names, runs in sets.items()
    )


def _options(runs: Sequence[RunComparison]) -> list[PanelOption]:
    by_sharing: dict[Sharing, list[RunComparison]] = {}
    for run in runs:
        by_sharing.setdefault(sharing_of(run.run), []).append(run)
    return [
        PanelOption(
            sharing=sharing,
            measured=mean(run.measured_speedup for run in same),
            times=len(same),
            predicted=same[0].predicted_speedup,
            baselines={
                name: same[0].baseline_speedup(name) for name in same[0].jobs[0].baselines_s
            },
        )
        for sharing, same in by_sharing.items()
    ]


def _serial(runs: Sequence[RunComparison], alone: Sequence[Run]) -> PanelOption:
    prefix = commonprefix([run.run.id for run in runs])  # noqa: RUF071 - ids are no paths
    campaign, *_ = re.split(r"-\d+-", prefix)  # before the number of the set
    of_campaign = re.compile(rf"{re.escape(campaign)}-(elsewhere-)?solo-.+")
    own = ("validation", "repeat")
    steps: dict[str, list[float]] = {}
    for run in alone:
        beside = run.purpose == "solo" and of_campaign.fullmatch(run.id)
        if beside or (run.purpose in own and run.id.startswith(prefix)):
            (tenant,) = run.tenants
            steps.setdefault(tenant.workload.name, []).append(tenant.step_s)
    jobs = runs[0].jobs
    return PanelOption(
        sharing=Serial(),
        measured=mean(job.alone_s / mean(steps.get(job.job, [job.alone_s])) for job in jobs),
        times=1,
        predicted=1.0,
        baselines=dict.fromkeys(jobs[0].baselines_s, 1.0),
    )


def counted_names(names: Sequence[str]) -> str:
    """`names` with counts, as the command line takes them."""
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return " ".join(name if count == 1 else f"{name}:{count}" for name, count in counts.items())


# A set that was run in one way only, apart from one after another, does not test the choice.
_FEWEST_OPTIONS = 3

MODEL, AT_RANDOM = "model", "random"


@dataclass(frozen=True, slots=True)
class Regret:
    """Regret of one way to choose, over the job sets for which it has an answer, as shares.

    Attributes:
        n: Number of job sets; mean and worst are None if there are none.
        best: Number of job sets for which nothing better was measured.
    """

    n: int
    mean: float | None
    worst: float | None
    best: int


@dataclass(frozen=True, slots=True)
class DegreeRegret:
    """Regret of the model's choices for sets of a given number of jobs."""

    degree: int
    regret: Regret


@dataclass(frozen=True, slots=True)
class Choices:
    """Regret of the ways to choose, for some job sets.

    Attributes:
        sets: Number of sets.
        rules: By way to choose, the model's first.
        noise: Median share by which two runs of the same jobs on one host differ in throughput;
            None if none was run twice.
        differ: Number of sets whose best and worst ways differ by more than the noise.
        clear: As `rules`, for the sets whose best way leads the next by more than the noise.
        by_degree: Regret of the model's choices, fewest jobs first.
    """

    sets: int
    rules: Mapping[str, Regret]
    noise: float | None
    differ: int
    clear: Mapping[str, Regret]
    by_degree: tuple[DegreeRegret, ...]

    def worst_beyond_noise(self, rule: str) -> float | None:
        """What the worst choice by `rule` gave away, less what two runs differ by; None likewise.

        Never below 0: within the noise nobody can tell which way is best.
        """
        worst = self.rules[rule].worst
        return None if worst is None else max(0.0, worst - (self.noise or 0.0))


def chosen_and_drawn(evaluation: Evaluation) -> tuple[Choices, Choices]:
    """Of the sets that were run to be chosen from, and of those drawn in several modes."""
    by_id = {run.run.id: run.run for run in evaluation.advice}
    pairs = [(by_id[run.repeats], run) for run in by_id.values() if run.repeats in by_id]
    again = [pair for pair in pairs if len(set(hosts_of(pair).values())) == 1]
    noises = (throughput_noise(each, evaluation.profiles) for each in (again, evaluation.repeats))
    sets = choices(evaluation), drawn_choices(evaluation)
    chosen, drawn = (
        judged(found, evaluation.profiles, noise) for found, noise in zip(sets, noises, strict=True)
    )
    return chosen, drawn


def judged(
    sets: Sequence[Panel], profiles: Mapping[str, Profile], noise: float | None = None
) -> Choices:
    """What every way to choose gives away of `sets`.

    Args:
        sets: Job sets with what was measured of each way to run them.
        profiles: Solo profiles of their jobs by name.
        noise: Share by which two runs of the same jobs differ in throughput.
    """
    degrees = sorted({len(panel.names) for panel in sets})
    floor = noise or 0.0
    return Choices(
        sets=len(sets),
        rules=regrets(sets, profiles),
        noise=noise,
        differ=sum(panel.spread > floor for panel in sets),
        clear=regrets([panel for panel in sets if panel.lead > floor], profiles),
        by_degree=tuple(
            DegreeRegret(
                degree, regret_of([panel.regret for panel in sets if len(panel.names) == degree])
            )
            for degree in degrees
        ),
    )


def regret_document(evaluation: Evaluation) -> dict[str, Any]:
    """Mean, worst and n of the model's choices; `baselines` has the mean of each other rule."""
    found, _ = chosen_and_drawn(evaluation)
    others = {name: each for name, each in found.rules.items() if name != MODEL}
    return {
        **asdict(found.rules[MODEL]),
        "noise_floor": found.noise,
        "worst_beyond_noise": found.worst_beyond_noise(MODEL),
        "sets_that_differ": found.differ,
        "clear": asdict(found.clear[MODEL]),
        "baselines": {name: each.mean for name, each in others.items()},
        "baselines_worst": {name: each.worst for name, each in others.items()},
        "baselines_n": {name: each.n for name, each in others.items()},
        "by_degree": [{"degree": each.degree, **asdict(each.regret)} for each in found.by_degree],
    }


def choices(evaluation: Evaluation) -> tuple[Panel, ...]:
    """The job sets that were run in several ways to be chosen from."""
    found = panels(evaluation.advice, evaluation.alone)
    return tuple(panel for panel in found if len(panel.options) >= _FEWEST_OPTIONS)


def drawn_choices(evaluation: Evaluation) -> tuple[Panel, ...]:
    """The same among the scored runs, where a set happened to be drawn in several modes."""
    found = panels(evaluation.runs)
    return tuple(panel for panel in found if len(panel.options) >= _FEWEST_OPTIONS)


def regrets(sets: Sequence[Panel], profiles: Mapping[str, Profile]) -> dict[str, Regret]:
    """Of the model, of a random choice, of each rule, and of each baseline by its steps.

    Args:
        sets: Job sets with what was measured of each way to run them.
        profiles: Solo profiles by name.
    """
    names = sets[0].options[0].baselines if sets else {}
    rules: dict[str, Callable[[Panel], float | None]] = {MODEL: _by_model}
    rules |= {AT_RANDOM: _at_random}
    rules |= {name: partial(_by_rule, CHOOSERS[name], profiles) for name in CHOOSERS}
    rules |= {name: partial(_by_steps, name) for name in names}
    return {name: regret_of(map(rule, sets)) for name, rule in rules.items()}


def _by_model(panel: Panel) -> float | None:
    return panel.regret


def _at_random(panel: Panel) -> float | None:
    return panel.regret_at_random


def _by_steps(name: str, panel: Panel) -> float | None:
    return panel.regret_by(name)


def _by_rule(rule: Chooser, profiles: Mapping[str, Profile], panel: Panel) -> float | None:
    alone = tuple(profiles[name] for name in panel.names)
    picked = rule(Offer(alone, tuple(option.sharing for option in panel.options)))
    return None if picked is None else panel.regret_of(picked)


def regret_of(lost: Iterable[float | None]) -> Regret:
    """Summary of the shares `lost`, one for each job set; None: the rule had no answer."""
    known = [each for each in lost if each is not None]
    if not known:
        return Regret(0, None, None, 0)
    return Regret(len(known), mean(known), max(known), sum(each <= 0 for each in known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The figures of one evaluation; see `ScoreRow`, `Choices` and `Drift`.

    Attributes:
        gpu: Catalogue key.
        families: Families left out one after another.
        runs: Number of runs scored.
        rows: The scoreboard.
        chosen: Job sets that were run in several ways to be chosen from.
        drawn: The same among the scored runs.
        drift: None if no solo run lies between the shared ones.
        unusable: Drawn runs that could not be scored.
    """

    gpu: str
    families: tuple[str, ...]
    runs: int
    rows: tuple[ScoreRow, ...]
    chosen: Choices
    drawn: Choices
    drift: Drift | None
    unusable: int

    @property
    def by_degree(self) -> tuple[ScoreRow, ...]:
        """All hosts and jobs, raw: for each mode all degrees pooled, then each of them."""
        return tuple(row for row in self.rows if (row.view, row.host, row.bound) == _HEADLINE)

    def pooled(self, host: str = ALL, view: View = "raw") -> tuple[ScoreRow, ...]:
        """Of one host, or all: for each mode all jobs, then GPU-bound and host-bound ones."""
        rows = [r for r in self.rows if (r.view, r.host, r.degree) == (view, host, None)]
        return tuple(sorted(rows, key=lambda row: SHARED_MODES.index(row.mode)))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host, in the order of the runs."""
        return tuple(dict.fromkeys(row.host for row in self.rows if row.host != ALL))

    def on_known_cores(self, row: ScoreRow) -> ScoreRow | None:
        """The row of the same jobs on cores whose speed is known; None if there are none."""
        rows = self.pooled(row.host, "core-adjusted") if row.degree is None else ()
        alike = [each for each in rows if (each.mode, each.bound) == (row.mode, row.bound)]
        return alike[0] if alike else None


_HEADLINE = ("raw", ALL, ALL)


def scores_of(evaluation: Evaluation) -> Scores:
    """The figures of `evaluation`."""
    chosen, drawn = chosen_and_drawn(evaluation)
    return Scores(
        gpu=evaluation.gpu,
        families=evaluation.families,
        runs=len(evaluation.runs),
        rows=scoreboard(evaluation),
        chosen=chosen,
        drawn=drawn,
        drift=evaluation.drift,
        unusable=len(evaluation.unusable),
    )


def scoreboard(evaluation: Evaluation) -> tuple[ScoreRow, ...]:
    """All raw runs of each mode: pooled, then each degree: all, same jobs, mixed jobs.

    Then pooled rows of each mode: raw, for GPU-bound and host-bound jobs and for each host; and
    the same of the runs whose cores' speed is known.
    """
    return tuple(_row(evaluation, part) for part in (*_by_degree(evaluation), *_pooled(evaluation)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoredPart:
    """Some of the scored runs, and which of their jobs count."""

    runs: Sequence[RunComparison]
    view: View = "raw"
    host: str = ALL
    bound: Bound = ALL
    mode: Mode
    degree: int | None = None
    jobs: Jobs = ALL


def _by_degree(evaluation: Evaluation) -> Iterator[_ScoredPart]:
    for mode in SHARED_MODES:
        if runs := runs_of_mode(evaluation.runs, mode):
            everything = _ScoredPart(runs=runs, mode=mode)
            yield everything
            for degree in sorted({len(run.jobs) for run in runs}):
                of_degree = [run for run in runs if len(run.jobs) == degree]
                part = replace(everything, runs=of_degree, degree=degree)
                yield part
                same = [run for run in of_degree if len({job.job for job in run.jobs}) == 1]
                mixed = [run for run in of_degree if len({job.job for job in run.jobs}) > 1]
                if same and mixed:
                    yield replace(part, runs=same, jobs="same")
                    yield replace(part, runs=mixed, jobs="mixed")


def _pooled(evaluation: Evaluation) -> Iterator[_ScoredPart]:
    views: dict[View, Sequence[RunComparison]] = {
        "raw": evaluation.runs, "core-adjusted": evaluation.adjusted
    }  # fmt: skip
    at = hosts_of(run.run for run in evaluation.runs)
    for view, runs in views.items():
        for host in (ALL, *dict.fromkeys(at.values())):
            there = [run for run in runs if host in (ALL, at[run.run.id])]
            for mode in SHARED_MODES:
                part = _ScoredPart(runs=runs_of_mode(there, mode), view=view, host=host, mode=mode)
                for bound in BOUNDS:
                    wanted = replace(part, bound=bound)
                    if (view, host, bound) != _HEADLINE and _jobs(evaluation, wanted):
                        yield wanted


def _counts(evaluation: Evaluation, bound: Bound, job: JobComparison) -> bool:
    return bound == ALL or is_gpu_bound(evaluation.profiles[job.job]) == (bound == "gpu")


def _jobs(evaluation: Evaluation, part: _ScoredPart) -> list[JobComparison]:
    return [job for run in part.runs for job in run.jobs if _counts(evaluation, part.bound, job)]


def _row(evaluation: Evaluation, part: _ScoredPart) -> ScoreRow:
    jobs, whole = _jobs(evaluation, part), part.runs if part.bound == ALL else ()
    errors = np.abs([job.error for job in jobs])
    covered = coverage_of(jobs) if evaluation.intervals else None
    noise = noise_of(part.runs, evaluation.repeats, partial(_counts, evaluation, part.bound))
    return ScoreRow(
        view=part.view, host=part.host, bound=part.bound, mode=part.mode, degree=part.degree,
        jobs=part.jobs, n=len(jobs), runs=len(part.runs),
        mape=float(errors.mean()), median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)), rmse=float(np.sqrt(np.mean(errors**2))),
        coverage90=covered.share if covered else None,
        coverage90_low=covered.low if covered else None,
        coverage90_high=covered.high if covered else None,
        width90=mean_width(jobs) if covered else None,
        noise_floor=noise.median if noise else None, noise_floor_rmse=noise.rmse if noise else None,
        excess_error=noise.excess if noise else None,
        throughput_mape=_mape((run.predicted_speedup, run.measured_speedup) for run in whole),
        memory_mape=_mape((job.memory_mib, job.measured_memory_mib) for job in jobs),
        memory_total_mape=_mape((r.memory_total_mib, r.measured_memory_total_mib) for r in whole),
        baselines={each: _mape((j.baselines_s[each], j.measured_s) for j in jobs)
                   for each in jobs[0].baselines_s},
        baselines_n={each: sum(j.baselines_s[each] is not None for j in jobs)
                     for each in jobs[0].baselines_s},
    )  # fmt: skip


def _mape(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    errors = [
        abs(predicted / measured - 1)
        for predicted, measured in pairs
        if measured and predicted is not None
    ]
    return float(np.mean(errors)) if errors else None
