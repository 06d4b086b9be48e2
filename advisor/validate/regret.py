"""The regret of choices, the model's and those of rules, in measured throughput.

Choices are made from profiles as they were measured, and one after another is as fast as the solo
runs made beside the others: both as a user has it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import Any

from advisor.validate.baselines import CHOOSERS, Chooser, Offer
from advisor.validate.evaluate import Evaluation
from advisor.validate.noise_and_coverage import throughput_noise
from advisor.validate.panels import Panel, panels
from advisor.validate.selection import hosts_of
from advisor.workload.profile import Profile

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
