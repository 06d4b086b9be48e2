"""The error on a GPU of which the model saw no run, nor a run of the job's family on any GPU.

The models are those of leave-one-family-out on one GPU; what they are fitted, tuned and calibrated
to is of that GPU alone. They predict the drawn runs on another from the profiles made there: of the
GPU that the report is of on each other one, and the other way round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path

from advisor.hardware.catalogue import catalogue, gpu
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.model_file import Model
from advisor.validate.evaluate import Evaluation, evaluate, evaluation_of
from advisor.validate.folds import Folds, HeldOut, compared_by
from advisor.validate.score_tables import CHOICE_HEADINGS, choice_rows, markdown, score_cells
from advisor.validate.scoreboard import Scores, scores_of
from advisor.validate.selection import Selection, cores_known, families_of, select
from advisor.workload.run import Run
from research.files import measured
from research.recommended import Recommended, recommended, summary

_SHOWN = (
    "sharing", "jobs", "n", "MAPE", "core speeds known", "median", "P90", "in 90 % interval",
    "width of it", "replay alone", "as if alone",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLeftOut:
    """One GPU's drawn runs, predicted by models that saw no run on it.

    Attributes:
        learnt_on: The GPU whose runs the models were fitted to.
        scores: On the GPU left out.
        recommended: What became of recommendations for it that were written down beforehand.
    """

    learnt_on: str
    scores: Scores
    recommended: tuple[Recommended, ...]


def gpus_left_out(
    folders: Sequence[Path], learnt_on: str, models: Mapping[str, Model]
) -> tuple[GpuLeftOut, ...]:
    """The GPUs of `folders`, each left out.

    Args:
        folders: Of profiles and runs, named by GPU; those without runs are passed over.
        learnt_on: The GPU of all runs that `models` were fitted to.
        models: By family: what saw no run of it.
    """
    return tuple(
        _scored(learnt_on, left_out(folder, models)) for folder in _of_others(folders, learnt_on)
    )


def learnt_elsewhere(
    folders: Sequence[Path], folder: Path, processes: int = 1
) -> tuple[GpuLeftOut, ...]:
    """The GPU of `folder`, left out: predicted by models of each other one's runs alone.

    Args:
        folders: As in `gpus_left_out`.
        folder: One of them.
        processes: How many to spread the fits over.
    """
    return tuple(
        _scored(other.name, left_out(folder, _models_of(other, processes, _families(folder))))
        for other in _of_others(folders, folder.name)
    )


def _scored(learnt_on: str, found: Evaluation) -> GpuLeftOut:
    return GpuLeftOut(learnt_on=learnt_on, scores=scores_of(found), recommended=recommended(found))


def _of_others(folders: Sequence[Path], key: str) -> list[Path]:
    """Those of GPUs in the catalogue but `key`, on which something ran."""
    others = catalogue().keys() - {key}
    return [each for each in folders if each.name in others and any(each.glob("runs/*.jsonl"))]


def _families(folder: Path) -> Sequence[str]:
    """Those of the jobs that are predicted in `folder`."""
    return families_of(_wanted(select(*measured(folder), gpu(folder.name))))


def _wanted(chosen: Selection) -> tuple[Run, ...]:
    return (*chosen.scored, *chosen.advice)


def _models_of(folder: Path, processes: int, families: Sequence[str]) -> dict[str, Model]:
    """By each of `families` the model of the runs in `folder` without it."""
    card, (profiles, runs) = gpu(folder.name), measured(folder)
    without = evaluate(profiles, runs, card, processes).models
    whole = fit([MeasuredGpu(card, profiles, runs)])  # for those that never ran there
    return dict.fromkeys(families, whole) | dict(without)


def left_out(folder: Path, models: Mapping[str, Model]) -> Evaluation:
    """The runs in `folder`, each job predicted by that of `models` without its family."""
    card, (profiles, runs) = gpu(folder.name), measured(folder)
    chosen = select(profiles, runs, card)
    on_cores = tuple(filter(cores_known, chosen.scored))
    folds = Folds(profiles, runs, _wanted(chosen), on_cores, card, ReplayCache())
    parts = (folds.predicted_by(model, family) for family, model in models.items())
    held = reduce(or_, parts, HeldOut())
    scored, advice = (compared_by(held.raw, part) for part in (chosen.scored, chosen.advice))
    found = evaluation_of(chosen, profiles, scored, advice)
    return replace(found, adjusted=compared_by(held.adjusted, on_cores))


def section(found: Sequence[GpuLeftOut]) -> str:
    """The tables in Markdown; empty without another GPU."""
    return f"## A GPU never seen\n\n{tables(found)}" if found else ""


def tables(found: Sequence[GpuLeftOut]) -> str:
    """For each GPU left out what was predicted by whom, and how far it was off."""
    parts = []
    for each in found:
        parts += [
            f"Models of {each.learnt_on} runs alone, without the family of the job, on "
            f"{each.scores.runs} drawn runs on {each.scores.gpu}, from the profiles made there:",
            markdown(_SHOWN, score_cells(each.scores, each.scores.pooled(), _SHOWN)),
            *_choices(each),
        ]
    return "\n\n".join(parts)


def _choices(found: GpuLeftOut) -> list[str]:
    """What the same models' choices gave away, and what was recommended; nothing without sets."""
    judged = found.scores.chosen
    if not judged.sets:
        return []
    said = f"Their choices, of {judged.sets} job sets that were run in several ways there:"
    return [
        said,
        markdown(CHOICE_HEADINGS, choice_rows(judged)),
        *filter(None, [summary(found.recommended)]),
    ]
