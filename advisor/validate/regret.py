"""The regret of choices, the model's and those of rules, in measured throughput."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import Any

from advisor.validate.choosers import CHOOSERS, Chooser, Offer
from advisor.validate.evaluate import Evaluation
from advisor.validate.panels import Panel, panels
from advisor.validate.score_words import MODEL, RULE_WORDS, percent
from advisor.workload.profile import Profile

# A set that was run in one way only, apart from one after another, does not test the choice.
_FEWEST_OPTIONS = 3

HEADINGS = ("choice by", "job sets", "mean regret", "worst", "sets with the best choice")


@dataclass(frozen=True, slots=True)
class Regret:
    """Of one way to choose, over the job sets for which it has an answer; shares.

    Attributes:
        n: Job sets; mean and worst are None if there are none.
        best: Job sets for which nothing better was measured.
    """

    n: int
    mean: float | None
    worst: float | None
    best: int


@dataclass(frozen=True, slots=True)
class DegreeRegret:
    """Of the model's choices for sets of so many jobs."""

    degree: int
    regret: Regret


@dataclass(frozen=True, slots=True)
class Choices:
    """What choosing for some job sets gives away.

    Attributes:
        sets: How many.
        rules: By way to choose, the model's first.
        by_degree: The model's, fewest jobs first.
    """

    sets: int
    rules: Mapping[str, Regret]
    by_degree: tuple[DegreeRegret, ...]


def judged(sets: Sequence[Panel], profiles: Mapping[str, Profile]) -> Choices:
    """What every way to choose gives away of `sets`, whose jobs' `profiles` go by name."""
    degrees = sorted({len(panel.names) for panel in sets})
    return Choices(
        sets=len(sets),
        rules=regrets(sets, profiles),
        by_degree=tuple(
            DegreeRegret(
                degree, regret_of([panel.regret for panel in sets if len(panel.names) == degree])
            )
            for degree in degrees
        ),
    )


def regret_document(evaluation: Evaluation) -> dict[str, Any]:
    """Mean, worst and n of the model's choices; `baselines` has the mean of each other rule."""
    found = judged(choices(evaluation), evaluation.profiles)
    others = {name: each for name, each in found.rules.items() if name != MODEL}
    return {
        **asdict(found.rules[MODEL]),
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
    """Of the model, of each rule, and of each baseline by its steps, over `sets`.

    Args:
        sets: Job sets with what was measured of each way to run them.
        profiles: Solo profiles by name.
    """
    names = sets[0].options[0].baselines if sets else {}
    rules: dict[str, Callable[[Panel], float | None]] = {MODEL: _by_model}
    rules |= {name: partial(_by_rule, CHOOSERS[name], profiles) for name in CHOOSERS}
    rules |= {name: partial(_by_steps, name) for name in names}
    return {name: regret_of(map(rule, sets)) for name, rule in rules.items()}


def regret_rows(
    rules: Mapping[str, Regret], words: Mapping[str, str] = RULE_WORDS
) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each way to choose, best first."""
    known = [(name, each) for name, each in rules.items() if each.n]
    known.sort(key=lambda pair: pair[1].mean or 0.0)
    return [
        (
            words.get(name, name),
            str(each.n),
            percent(each.mean),
            percent(each.worst),
            f"{each.best} of {each.n}",
        )
        for name, each in known
    ]


def _by_model(panel: Panel) -> float | None:
    return panel.regret


def _by_steps(name: str, panel: Panel) -> float | None:
    return panel.regret_by(name)


def _by_rule(rule: Chooser, profiles: Mapping[str, Profile], panel: Panel) -> float | None:
    alone = tuple(profiles[name] for name in panel.names)
    picked = rule(Offer(alone, tuple(option.sharing for option in panel.options)))
    return None if picked is None else panel.regret_of(picked)


def regret_of(lost: Iterable[float | None]) -> Regret:
    """Over the job sets of which each of `lost` was given away; None: the rule had no answer."""
    known = [each for each in lost if each is not None]
    if not known:
        return Regret(0, None, None, 0)
    return Regret(len(known), mean(known), max(known), sum(each <= 0 for each in known))
