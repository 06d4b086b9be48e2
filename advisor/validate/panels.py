"""Panels: plans of one job set that were all run, to see which was best and which was chosen."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from statistics import mean

from advisor.prediction.interval import all_known
from advisor.sharing import Serial, Sharing
from advisor.validate.predicted_and_measured import RunComparison, sharing_of
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
