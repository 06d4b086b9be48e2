"""Errors on a GPU of which the model saw no run, nor a run of the job's family on any GPU.

The models are those of leave-one-family-out on one GPU, fitted, tuned and calibrated to runs of
that GPU alone. They predict the drawn runs on another GPU from the profiles made there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.hardware.gpus import catalogue, gpu
from advisor.learn.evaluate import (
    Evaluation,
    evaluate,
    evaluation_by,
    families_of,
    predicted_by,
    select,
)
from advisor.learn.fit import fit
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.learn.scoreboard import Scores, scores_of
from advisor.prediction.model import Model
from advisor.report.scores import CHOICE_HEADINGS, choice_rows, markdown, score_cells
from research.choices import Recommended, recommended, recommended_summary
from research.files import measured
from research.steps import joined

_SHOWN = (
    "sharing", "jobs", "n", "MAPE", "median", "P90", "in 90 % interval", "width of it",
    "replay alone", "fair share", "as if alone",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLeftOut:
    """One GPU's drawn runs, predicted by models that saw no run on it.

    Attributes:
        learnt_on: The GPU whose runs the models were fitted to.
        scores: On the GPU left out.
        recommended: Recommendations for it that were written down beforehand.
    """

    learnt_on: str
    scores: Scores
    recommended: tuple[Recommended, ...]


def gpus_left_out(
    folders: Sequence[Path], learnt_on: str, models: Mapping[str, Model]
) -> tuple[GpuLeftOut, ...]:
    """Leave out each other GPU.

    Args:
        folders: Of profiles and runs, named by GPU; those without runs are skipped.
        learnt_on: The GPU of all runs that `models` were fitted to.
        models: By family: the model that saw no run of it.
    """
    return tuple(
        _scored(learnt_on, left_out(folder, models)) for folder in _of_others(folders, learnt_on)
    )


def learnt_elsewhere(
    folders: Sequence[Path], folder: Path, processes: int = 1
) -> tuple[GpuLeftOut, ...]:
    """Leave out the GPU of `folder`, one of `folders`: models of each other GPU predict it."""
    families = families_of(select(*measured(folder), gpu(folder.name)).predicted)
    results = []
    for other in _of_others(folders, folder.name):
        card, (profiles, runs) = gpu(other.name), measured(other)
        whole = fit([MeasuredGpu(card, profiles, runs)])  # for families that never ran there
        without = evaluate(profiles, runs, card, processes).models
        models = dict.fromkeys(families, whole) | dict(without)
        results.append(_scored(other.name, left_out(folder, models)))
    return tuple(results)


def _scored(learnt_on: str, evaluation: Evaluation) -> GpuLeftOut:
    return GpuLeftOut(
        learnt_on=learnt_on, scores=scores_of(evaluation), recommended=recommended(evaluation)
    )


def _of_others(folders: Sequence[Path], key: str) -> list[Path]:
    """Return the folders of GPUs other than `key` that have runs."""
    others = catalogue().keys() - {key}
    return [path for path in folders if path.name in others and any(path.glob("runs/*.jsonl"))]


def left_out(folder: Path, models: Mapping[str, Model]) -> Evaluation:
    """Predict the runs in `folder`, each job by that of `models` without its family."""
    selection, playback = select(*measured(folder), gpu(folder.name)), ReplayCache()
    return evaluation_by(selection, {
        family: (model, *predicted_by(model, [family], selection, playback))
        for family, model in models.items()
    })  # fmt: skip


def left_out_section(gpus: Sequence[GpuLeftOut]) -> str:
    """Return the tables with a heading; empty without another GPU."""
    return joined("## A GPU left out", left_out_tables(gpus)) if gpus else ""


def left_out_tables(gpus: Sequence[GpuLeftOut]) -> str:
    """Return for each GPU left out the errors, and what choices gave away."""
    parts = []
    for row in gpus:
        scores = row.scores
        parts += [
            f"Models of {row.learnt_on} runs alone, without the family of the job, on "
            f"{scores.runs} drawn runs on {scores.gpu}, from the profiles made there:",
            markdown(_SHOWN, score_cells(scores.pooled(), _SHOWN)),
        ]
        if scores.chosen.sets:
            parts += [
                f"Their choices, for {scores.chosen.sets} job sets that were run in several ways "
                "there:",
                markdown(CHOICE_HEADINGS, choice_rows(scores.chosen)),
            ]
            if row.recommended:
                parts.append(recommended_summary(row.recommended))
    return joined(*parts)
