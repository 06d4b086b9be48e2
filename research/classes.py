"""Errors for a class of networks of which the model saw no family, by mode."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from advisor.learn.observations import ReplayCache
from advisor.learn.scores import sharing_of
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from research.evaluate import Evaluation, families_of, predict_folds
from research.score_tables import MODE_WORDS, markdown
from research.steps import joined

# The other families (recommenders, graph and recurrent networks, U-Nets, MLPs) are no class.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "CNN": (
        "cnn",
        "convnext",
        "densenet",
        "efficientnetv2",
        "ghostnet",
        "hrnet",
        "mcdnn",
        "mixnet",
        "mobilenetv3",
        "nasnet",
        "regnet",
        "res2net",
        "resnet",
    ),
    "ViT": ("beit", "cait", "mixer", "swin", "vit", "xcit"),
    "LM": ("bert", "gpt2", "t5", "transformer"),
}
_ALL = "all three"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLeftOut:
    """Errors of the same drawn jobs by two models; shares of the measured step.

    Attributes:
        name: A class, or all of them pooled.
        mape: By the model that saw no family of the class.
        family_mape: By the model that saw all families but the job's own.
    """

    name: str
    mode: Mode
    n: int
    mape: float
    family_mape: float


def classes_left_out(
    evaluation: Evaluation, playback: ReplayCache, processes: int = 1
) -> tuple[ClassLeftOut, ...]:
    """Leave out each class that has several families among the runs, and another to learn from."""
    present = set(families_of(evaluation.chosen.predicted))
    folds = {name: present.intersection(families) for name, families in CLASSES.items()}
    folds = {name: some for name, some in folds.items() if len(some) > 1 and some < present}
    parts = predict_folds(folds, evaluation.chosen, playback, processes) if folds else {}
    errors: dict[tuple[str, Mode], list[tuple[float, float]]] = {}
    for run in evaluation.runs:
        for place, job in enumerate(run.jobs):
            for name, (_, held) in parts.items():
                if (other := held.get(("raw", run.run.id, place))) is not None:
                    pair = abs(other.error), abs(job.error)
                    for group in (name, _ALL):
                        errors.setdefault((group, sharing_of(run.run).mode), []).append(pair)
    return tuple(
        ClassLeftOut(
            name=name,
            mode=mode,
            n=len(pairs),
            mape=mean(mine for mine, _ in pairs),
            family_mape=mean(family for _, family in pairs),
        )
        for name in (_ALL, *folds)
        for mode in SHARED_MODES
        if (pairs := errors.get((name, mode)))
    )


def classes_table(rows: Sequence[ClassLeftOut]) -> str:
    """Return a line for each class and mode, in Markdown."""
    return markdown(
        ("class", "sharing", "n", "MAPE, class left out", "MAPE, family left out"),
        [
            (
                row.name,
                MODE_WORDS[row.mode],
                str(row.n),
                percent(row.mape),
                percent(row.family_mape),
            )
            for row in rows
        ],
    )


def classes_section(rows: Sequence[ClassLeftOut]) -> str:
    """Return the table with a heading; empty without rows."""
    if not rows:
        return ""
    families = "; ".join(f"{name}: {', '.join(some)}" for name, some in CLASSES.items())
    return joined(
        "## A class of networks left out",
        "The model saw no run with any family of the job's class. The same jobs are scored in both "
        f"columns. {families}.",
        classes_table(rows),
    )
