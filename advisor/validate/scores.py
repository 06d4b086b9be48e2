"""The figures of an evaluation of step times: the scoreboard and the regret of choices."""

from dataclasses import dataclass

from advisor.validate.evaluate import Drift, Evaluation
from advisor.validate.regret import Choices, choices, drawn_choices, judged
from advisor.validate.scoreboard import ScoreRow, scoreboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The figures of one evaluation; what each means stands at `ScoreRow`, `Choices` and `Drift`.

    Attributes:
        gpu: Catalogue key.
        families: Left out one after another.
        runs: How many were scored.
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
    def pooled(self) -> tuple[ScoreRow, ...]:
        """One row a mode, over all degrees."""
        return tuple(row for row in self.rows if row.degree is None)


def scores_of(evaluation: Evaluation) -> Scores:
    """The figures of `evaluation`."""
    return Scores(
        gpu=evaluation.gpu,
        families=evaluation.families,
        runs=len(evaluation.runs),
        rows=scoreboard(evaluation),
        chosen=judged(choices(evaluation), evaluation.profiles),
        drawn=judged(drawn_choices(evaluation), evaluation.profiles),
        drift=evaluation.drift,
        unusable=len(evaluation.unusable),
    )
