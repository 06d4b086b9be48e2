"""The regret of choices, the model's and those of rules, in measured throughput.

Choices are made from profiles as they were measured, and one after another is as fast as the solo
runs of the same campaign: both as a user has it. To add a rule that chooses how jobs share without
predicting, write one function of the type `Chooser` and one line in `CHOOSERS`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os.path import commonprefix
from statistics import mean, median

from advisor.learn.scores import RunComparison, sharing_of
from advisor.plan.objectives import weighed
from advisor.sharing import Mps, Naive, Serial, Sharing
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.baselines import baseline_speedup
from research.evaluate import Evaluation, Selection

Chooser = Callable[[tuple[Profile, ...], Sequence[Sharing]], Sharing | None]
"""Profiles of jobs in order, and ways to share to choose from, serial first -> one of these; None
if the rule's own answer is not among them. Nothing measured of the jobs together is known to it."""


def _always(wanted: Sharing, _: tuple[Profile, ...], sharings: Sequence[Sharing]) -> Sharing | None:
    return wanted if wanted in sharings else None


def _equal_limits(jobs: tuple[Profile, ...], sharings: Sequence[Sharing]) -> Sharing | None:
    """Under MPS with the same limit for each: the one nearest an equal part of the GPU."""
    equal = [each for each in sharings if len(set(each.limits)) == 1]
    return min(equal, key=lambda each: abs(each.limits[0] - 100 / len(jobs)), default=None)


CHOOSERS: Mapping[str, Chooser] = {
    "always-serial": partial(_always, Serial()),
    "always-naive": partial(_always, Naive()),
    "always-mps": partial(_always, Mps()),
    "equal-limits": _equal_limits,
}


MODEL, AT_RANDOM = "model", "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOption:
    """One way in which a job set was run; throughput is the sum of solo over shared steps.

    Attributes:
        measured: Mean over all `times` it was run, so that no single lucky run sets the mark.
        predicted: By `MODEL` and by each baseline; None if it is not defined.
    """

    sharing: Sharing
    measured: float
    times: int
    predicted: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Panel:
    """The ways in which one job set was run, serial first; `names` are those of the jobs."""

    names: tuple[str, ...]
    options: tuple[PanelOption, ...]

    def regret_by(self, predictor: str) -> float | None:
        """Return the regret of choosing by the predictions of the model or of a baseline.

        The model chooses as `recommend` does, with handicaps; a baseline chooses its highest. It
        never chooses an option that it does not cover; None if it covers the first alone. Any of
        several options with the same prediction may be chosen: the mean over them.
        """
        predicted = [
            each and each / (weighed(1.0, option.sharing) if predictor == MODEL else 1.0)
            for option in self.options
            for each in [option.predicted[predictor]]
        ]
        if all(each is None for each in predicted[1:]):
            return None
        highest = max(each for each in predicted if each is not None)
        pairs = zip(self.options, predicted, strict=True)
        return self.regret_among([option for option, each in pairs if each == highest])

    def regret_of(self, sharing: Sharing) -> float:
        """Return the regret of choosing `sharing`, which is one of the options."""
        return self.regret_among([each for each in self.options if each.sharing == sharing])

    def regret_among(self, chosen: Sequence[PanelOption]) -> float:
        """Return the mean share of the best measured throughput that `chosen` give away, 0..1."""
        best = max(option.measured for option in self.options)
        return 1 - mean(option.measured for option in chosen) / best


def panels(comparisons: Iterable[RunComparison], alone: Sequence[Run] = ()) -> tuple[Panel, ...]:
    """Group shared runs by job set, in the order in which the sets were first run.

    One sharing may have been run several times. A set's serial option is made of those runs `alone`
    whose ids begin as the ids of its runs do, and of the solo runs of its campaign, on any host:
    alone, a job runs the same for every set. A job without either ran as in its profile.
    """
    sets: dict[tuple[str, ...], dict[Sharing, list[RunComparison]]] = {}
    for run in comparisons:
        if len(run.jobs) > 1:
            ways = sets.setdefault(tuple(job.job for job in run.jobs), {})
            ways.setdefault(sharing_of(run.run), []).append(run)

    def option(sharing: Sharing, same: Sequence[RunComparison]) -> PanelOption:
        first = same[0]
        return PanelOption(
            sharing=sharing,
            measured=mean(run.measured_speedup for run in same),
            times=len(same),
            predicted={
                MODEL: first.predicted_speedup,
                **{name: baseline_speedup(first, name) for name in first.jobs[0].baselines_s},
            },
        )

    panels = []
    for names, ways in sets.items():
        serial = _serial([run for same in ways.values() for run in same], alone)
        panels.append(Panel(names, (serial, *map(option, ways, ways.values()))))
    return tuple(panels)


def _serial(runs: Sequence[RunComparison], alone: Sequence[Run]) -> PanelOption:
    prefix = commonprefix([run.run.id for run in runs])  # noqa: RUF071 - ids are no paths
    campaign, *_ = re.split(r"-\d+-", prefix)  # before the number of the set
    of_campaign = re.compile(rf"{re.escape(campaign)}-(elsewhere-)?solo-.+")
    own = ("validation", "repeat")
    steps: dict[str, list[float]] = {}
    for run in alone:
        solo = run.purpose == "solo" and of_campaign.fullmatch(run.id)
        if solo or (run.purpose in own and run.id.startswith(prefix)):
            (tenant,) = run.tenants
            steps.setdefault(tenant.workload.name, []).append(tenant.step_s)
    jobs = runs[0].jobs
    return PanelOption(
        sharing=Serial(),
        measured=mean(job.alone_s / mean(steps.get(job.job, [job.alone_s])) for job in jobs),
        times=1,
        predicted=dict.fromkeys((MODEL, *jobs[0].baselines_s), 1.0),
    )


# A set that was run in one way only, apart from one after another, does not test the choice.
_FEWEST_OPTIONS = 3


@dataclass(frozen=True, slots=True)
class Regret:
    """Regret of one way to choose, over the job sets for which it has an answer, as shares.

    Attributes:
        n: Number of job sets; mean and worst are None if there are none.
        best: Number of job sets for which nothing better was measured.
        ours: Mean regret of the model's choices for the same job sets; None without any.
    """

    n: int
    mean: float | None
    worst: float | None
    best: int
    ours: float | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Regret of the ways to choose, for some job sets.

    Attributes:
        sets: Number of sets.
        rules: By way to choose, the model's first.
        noise: Median share by which two runs of the same jobs on one host differ in throughput;
            None if none was run twice.
    """

    sets: int
    rules: Mapping[str, Regret]
    noise: float | None

    def worst_beyond_noise(self, rule: str) -> float | None:
        """Return the worst regret by `rule` less the noise, but at least 0; None if it has none."""
        worst = self.rules[rule].worst
        return None if worst is None else max(0.0, worst - (self.noise or 0.0))


def chosen_and_drawn(evaluation: Evaluation) -> tuple[Choices, Choices]:
    """Judge the sets that were run to be chosen from, and those drawn in several modes."""
    drawn = _testing(panels(evaluation.runs))
    return (
        _judged(choices(evaluation), evaluation.advice, evaluation.chosen),
        _judged(drawn, evaluation.runs, evaluation.chosen),
    )


def choices(evaluation: Evaluation) -> tuple[Panel, ...]:
    """Return the job sets that were run in several ways to be chosen from."""
    return _testing(panels(evaluation.advice, evaluation.chosen.alone))


def _testing(sets: Iterable[Panel]) -> tuple[Panel, ...]:
    return tuple(panel for panel in sets if len(panel.options) >= _FEWEST_OPTIONS)


def _judged(sets: Sequence[Panel], runs: Iterable[RunComparison], chosen: Selection) -> Choices:
    """Compute the regret of every way to choose, for `sets`; the noise is that of `runs`."""
    ids, profiles = {run.run.id for run in runs}, chosen.profiles

    def throughput(run: Run) -> float:
        steps = zip(run.names, run.tenants, strict=True)
        return sum(profiles[name].step_s / tenant.step_s for name, tenant in steps)

    def by_rule(rule: Chooser, panel: Panel) -> float | None:
        alone = tuple(profiles[name] for name in panel.names)
        picked = rule(alone, [option.sharing for option in panel.options])
        return None if picked is None else panel.regret_of(picked)

    differences = [
        abs(throughput(again) / throughput(first) - 1)
        for first, again in chosen.repeats
        if first.id in ids
    ]
    predictors = sets[0].options[0].predicted if sets else (MODEL,)
    by_steps = {name: [panel.regret_by(name) for panel in sets] for name in predictors}
    lost: dict[str, list[float | None]] = {
        MODEL: by_steps[MODEL],
        AT_RANDOM: [panel.regret_among(panel.options) for panel in sets],
        **{name: [by_rule(rule, panel) for panel in sets] for name, rule in CHOOSERS.items()},
        **by_steps,
    }
    return Choices(
        sets=len(sets),
        rules={name: regret_of(shares, by_steps[MODEL]) for name, shares in lost.items()},
        noise=median(differences) if differences else None,
    )


def regret_of(lost: Sequence[float | None], ours: Sequence[float | None] = ()) -> Regret:
    """Summarise the shares `lost`, one for each job set; None: the rule had no answer.

    `ours` are what the model's choices lost for the same job sets.
    """
    shares = [each for each in lost if each is not None]
    if not shares:
        return Regret(0, None, None, 0)
    pairs = zip(lost, ours, strict=False)
    same = [mine for each, mine in pairs if each is not None and mine is not None]
    best = sum(each <= 0 for each in shares)
    return Regret(len(shares), mean(shares), max(shares), best, mean(same) if same else None)
