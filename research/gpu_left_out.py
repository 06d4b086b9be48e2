"""Errors on a GPU of which the model saw no run, nor a run of the job's family on any GPU.

The models are those of leave-one-family-out on one GPU, fitted, tuned and calibrated to runs of
that GPU alone. They predict the drawn runs on another GPU from the profiles made there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.hardware.gpus import catalogue, gpu
from advisor.learn.fit import fit
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.prediction.model import Model
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES
from research.choices import Recommended, recommended, recommended_summary
from research.evaluate import Selection, evaluate, families_of, select
from research.files import measured
from research.regret import MODEL
from research.score_tables import CHOICE_HEADINGS, choice_rows, markdown, score_cells
from research.scoreboard import ALL, Scores, scores_of
from research.steps import joined

_SHOWN = (
    "sharing",
    "jobs",
    "n",
    "MAPE",
    "median",
    "P90",
    "in 90 % interval",
    "width of it",
    "replay alone",
    "fair share",
    "as if alone",
)


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
    folder: Path, models: Mapping[str, Model], playback: ReplayCache, processes: int = 1
) -> tuple[GpuLeftOut, ...]:
    """Leave out each other GPU with runs, and the GPU of `folder` by models of each other one.

    `models` are those of the runs in `folder`, by the family left out; `playback` their replays.
    """
    selection = select(*measured(folder), gpu(folder.name))
    families = families_of(selection.predicted)
    results = []
    for other in sorted(folder.parent.iterdir()):
        if other.name in catalogue() and other != folder and any(other.glob("runs/*.jsonl")):
            card, (profiles, runs), replays = gpu(other.name), measured(other), ReplayCache()
            # For families that never ran there.
            whole = fit([MeasuredGpu(card, profiles, runs)], replays)
            without = evaluate(profiles, runs, card, processes, replays).models
            there, back = (
                select(profiles, runs, card),
                dict.fromkeys(families, whole) | dict(without),
            )
            results += [
                _scored(folder.name, there, models, replays, processes),
                _scored(other.name, selection, back, playback, processes),
            ]
    return tuple(results)


def _scored(
    learnt_on: str,
    selection: Selection,
    models: Mapping[str, Model],
    playback: ReplayCache,
    processes: int,
) -> GpuLeftOut:
    """Predict the runs of `selection`, each job by that of `models` without its family."""
    profiles, runs = selection.profiles, selection.runs
    evaluation = evaluate(profiles, runs, selection.gpu, processes, playback, models=models)
    return GpuLeftOut(
        learnt_on=learnt_on, scores=scores_of(evaluation), recommended=recommended(evaluation)
    )


def left_out_section(gpus: Sequence[GpuLeftOut]) -> str:
    """Return for each GPU left out the errors, and what choices gave away; empty without one."""
    if not gpus:
        return ""
    parts = ["## A GPU left out"]
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


def left_out_table(gpus: Iterable[GpuLeftOut]) -> str:
    """Return the errors on each GPU left out, and the mean regret there, in Markdown."""
    rows = []
    for each in gpus:
        of_all = {row.mode: row for row in each.scores.pooled() if row.bound == ALL}
        chosen = each.scores.chosen.rules.get(MODEL)
        rows.append(
            (
                each.learnt_on,
                each.scores.gpu,
                str(sum(row.n for row in of_all.values())),
                *(
                    percent(row.mape if (row := of_all.get(mode)) else None)
                    for mode in SHARED_MODES
                ),
                percent(chosen.mean if chosen else None),
            )
        )
    headings = (
        "fitted to",
        "scored on",
        "steps",
        "time-slicing",
        "MPS",
        "SM limits",
        "mean regret",
    )
    return markdown(headings, rows)
