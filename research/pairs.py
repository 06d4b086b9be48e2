"""Pairs of ways to share in which the same jobs ran on one host: how sure is a lead or a gain?

Each job is predicted without its family. The joint intervals rest on these pairs
(`advisor.plan.objectives`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from operator import eq
from statistics import fmean, mean, median

from advisor.learn.scores import RunComparison, sharing_of
from advisor.plan.objectives import holds_one, joint_ratio, weighed
from advisor.prediction.prediction import LEVELS, Interval, around
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Arrangement, Mode, Serial
from research.evaluate import Evaluation
from research.score_tables import MODE_WORDS, markdown
from research.steps import joined

_MODES: tuple[Mode, ...] = ("serial", *SHARED_MODES)
_WORDS = {**MODE_WORDS, "serial": "one after another"}


@dataclass(frozen=True, slots=True)
class Way:
    """Seconds that the work of a second alone takes, of all jobs: predicted and measured."""

    sharing: Arrangement
    predicted: Interval
    measured: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ways in which the same jobs ran on one host, the way that is simpler to set up first."""

    simpler: Way
    other: Way

    @property
    def ratio(self) -> Interval:
        """Predicted time of the simpler way over that of the other."""
        return joint_ratio(self.simpler.predicted, self.other.predicted, same_way=False)

    @property
    def measured(self) -> float:
        return self.simpler.measured / self.other.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """How sure a lead of one way over another is, and how choices between them come out.

    Attributes:
        error: Median absolute error of the lead.
        inside: Share of the pairs whose measured ratio lies in the joint interval.
        width: Mean width of the joint interval, as a share; `width_apart` if errors were
            independent.
        tied: Share of the pairs that are equal within our error.
        right_untied: Share of the others in which the way predicted faster was measured faster.
        right: Pairs in which the way is chosen that was measured faster, by the rule of
            `advisor.plan.objectives`; `by_cost` without handicaps.
        slower: Share of the chosen harder ways that were measured slower; `slower_by_cost` without
            handicaps.
    """

    simpler: Mode
    other: Mode
    pairs: int
    error: float
    inside: float
    width: float
    width_apart: float
    tied: float
    right_untied: float | None
    right: int
    by_cost: int
    slower: float
    slower_by_cost: float


def pairs_of(evaluation: Evaluation) -> list[Pair]:
    """Return a pair for each two ways in which the same jobs ran on one host; repeats as a mean."""
    hosts, alone_s = evaluation.chosen.hosts, _measured_alone(evaluation)
    sets: dict[tuple[str, ...], dict[str, list[RunComparison]]] = defaultdict(dict)
    for run in (*evaluation.runs, *evaluation.advice):
        if len(run.jobs) > 1:
            ways = sets[hosts[run.run.id], *sorted(job.job for job in run.jobs)]
            ways.setdefault(str(sharing_of(run.run)), []).append(run)
    pairs = []
    for (host, *_), by_way in sets.items():
        repeats = list(by_way.values())
        serial = _serial(repeats[0][0], evaluation, alone_s[host])
        ran = [*map(shared_way, repeats), *([] if serial is None else [serial])]
        ran.sort(key=lambda way: _MODES.index(way.sharing.mode))
        pairs += [
            Pair(*both)
            for both in combinations(ran, 2)
            if both[0].sharing.mode != both[1].sharing.mode
        ]
    return pairs


def _measured_alone(evaluation: Evaluation) -> Mapping[str, Mapping[str, list[float]]]:
    """Return the steps of jobs alone, in seconds, by host and name."""
    steps: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    hosts = evaluation.chosen.hosts
    for run in evaluation.chosen.runs:
        if len(run.tenants) == 1 and run.shows_pace and run.id in hosts:
            steps[hosts[run.id]][run.names[0]].append(run.tenants[0].step_s)
    return steps


def shared_way(same: Sequence[RunComparison]) -> Way:
    """Return the way in which the jobs of the runs `same` shared a GPU."""
    jobs = same[0].jobs
    predicted = around(
        [1 / sum(job.alone_s / job.predicted_s.at(level) for job in jobs) for level in LEVELS]
    )
    measured = exp(fmean(-log(run.measured_speedup) for run in same))
    return Way(sharing_of(same[0].run), predicted, measured)


def _serial(
    run: RunComparison, evaluation: Evaluation, steps_s: Mapping[str, Sequence[float]]
) -> Way | None:
    """The jobs of `run` one after another; None if one of them did not run alone on its host."""
    if not evaluation.models or any(job.job not in steps_s for job in run.jobs):
        return None
    measured = fmean(exp(fmean(map(log, steps_s[job.job]))) / job.alone_s for job in run.jobs)
    return Way(Serial(), in_turn(run, evaluation), measured)


def in_turn(run: RunComparison, evaluation: Evaluation) -> Interval:
    """Predict the seconds that the work of a second alone takes one after another: about 1."""
    predicted = [
        evaluation.models[job.family]
        .intervals["serial"]
        .around(evaluation.chosen.profiles[job.job], job.alone_s)
        .scaled(1 / job.alone_s)
        for job in run.jobs
    ]
    return around([fmean(each.at(level) for each in predicted) for level in LEVELS])


def pair_scores(evaluation: Evaluation) -> tuple[PairScore, ...]:
    """Return how sure leads between each two ways are, and how choices between them come out."""
    by_modes: dict[tuple[Mode, Mode], list[Pair]] = defaultdict(list)
    for pair in pairs_of(evaluation):
        by_modes[pair.simpler.sharing.mode, pair.other.sharing.mode].append(pair)
    return tuple(
        _score(*modes, by_modes[modes]) for modes in combinations(_MODES, 2) if modes in by_modes
    )


def _score(simpler: Mode, other: Mode, pairs: Sequence[Pair]) -> PairScore:
    ratios = [pair.ratio for pair in pairs]
    apart = [pair.simpler.predicted.over(pair.other.predicted, 0.0) for pair in pairs]
    faster = [pair.measured > 1 for pair in pairs]
    cheaper = [ratio.p50 > 1 for ratio in ratios]
    ahead = [
        weighed(pair.other.predicted.p50, pair.other.sharing)
        < weighed(pair.simpler.predicted.p50, pair.simpler.sharing)
        for pair in pairs
    ]
    sure = [
        both
        for both, r in zip(zip(cheaper, faster, strict=True), ratios, strict=True)
        if not holds_one(r)
    ]

    def slower(chosen: Sequence[bool]) -> float:
        slow = [not fast for fast, chose in zip(faster, chosen, strict=True) if chose]
        return mean(slow) if slow else 0.0

    return PairScore(
        simpler=simpler,
        other=other,
        pairs=len(pairs),
        error=median(abs(r.p50 / pair.measured - 1) for r, pair in zip(ratios, pairs, strict=True)),
        inside=mean(r.contains(pair.measured) for r, pair in zip(ratios, pairs, strict=True)),
        width=mean(map(_width, ratios)),
        width_apart=mean(map(_width, apart)),
        tied=1 - len(sure) / len(pairs),
        right_untied=mean(one == real for one, real in sure) if sure else None,
        right=sum(map(eq, ahead, faster)),
        by_cost=sum(map(eq, cheaper, faster)),
        slower=slower(ahead),
        slower_by_cost=slower(cheaper),
    )


def _width(ratio: Interval) -> float:
    return (ratio.p95 - ratio.p05) / ratio.p50


def pairs_section(scores: Sequence[PairScore]) -> str:
    """Return the section of the report."""
    names = [f"{_WORDS[row.other]} against {_WORDS[row.simpler]}" for row in scores]
    how_sure = [
        (
            name,
            str(row.pairs),
            percent(row.error),
            percent(row.inside),
            percent(row.width),
            percent(row.width_apart),
            percent(row.tied),
            "-" if row.right_untied is None else percent(row.right_untied),
        )
        for name, row in zip(names, scores, strict=True)
    ]
    chosen = [
        (
            name,
            str(row.pairs),
            str(row.right),
            str(row.by_cost),
            percent(row.slower),
            percent(row.slower_by_cost),
        )
        for name, row in zip(names, scores, strict=True)
    ]
    return joined(
        "## Leads of one way over another",
        "The same jobs on one host in two ways, each job predicted without its family. The joint "
        "interval is that of the ratio of both times; a tie is a pair whose joint interval holds "
        "1.",
        markdown(_SURE_HEADINGS, how_sure),
        "Choices by the rule of `recommend`, and by the cost alone:",
        markdown(_CHOSEN_HEADINGS, chosen),
    )


_SURE_HEADINGS = (
    "ways",
    "pairs",
    "error of the lead, median",
    "in joint interval",
    "width of it",
    "if errors were independent",
    "tied",
    "right of the others",
)
_CHOSEN_HEADINGS = (
    "ways",
    "pairs",
    "right",
    "right by cost alone",
    "chosen and slower",
    "by cost alone",
)
