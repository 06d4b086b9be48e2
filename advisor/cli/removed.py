"""Commands and options that are gone, and what to use instead."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from advisor.errors import InvalidInput

_ASK_PREDICT = "Use --objective energy; `advisor predict` prints the joules of a step."
_OBJECTIVES = {
    "energy-epoch": _ASK_PREDICT,
    "energy-example": _ASK_PREDICT,
    "fairness": "Use --objective throughput; `advisor recommend --protect JOB` keeps a job fast.",
}

_BATCH_OPTIONS = "Use `advisor predict JOB-bsN --sharing mig=1g.18gb` for the pace at a batch size."

REMOVED: Mapping[str, str] = {
    **{
        f"{command} --objective {objective}": instead
        for command in ("recommend", "explain", "export", "validate")
        for objective, instead in _OBJECTIVES.items()
    },
    "batch --batches": _BATCH_OPTIONS,
    "batch --details": _BATCH_OPTIONS,
    "confirm": "Run your own jobs and compare them with predictions: advisor validate JOB.",
    "status": "Use `advisor run --list`, or `advisor run RUN` to watch a run.",
    "restore": "Use `advisor doctor --undo`.",
    "run --resume": "Use `advisor run RUN`.",
    "estimate-memory": "Profile the workload for a minute instead: advisor profile WORKLOAD.",
    "profile --from-mlflow": "Describe the job by the numbers that its log and nvidia-smi show: "
    "advisor profile --from-numbers.",
    "profile --to-end": "Let the program print its pace: advisor profile --throughput REGEX.",
    "reproduce": "notebooks/the_studies_reproduced.ipynb shows every row of the studies.",
    "translate": "Any command translates a profile of another GPU by itself: name the profile or "
    "its file, and the GPU: advisor predict JOB --gpu GPU.",
    "watch": "Read its memory and power from nvidia-smi and its step from its log: "
    "advisor profile --from-numbers.",
}
"""What to use instead of a command, or of a command's option (``"profile --to-end"``)."""


def refuse_removed(words: Sequence[str]) -> None:
    """Refuse a command line that names a removed command, option, or value of an option.

    Args:
        words: The words after `advisor`, without those after ``--``.

    Raises:
        InvalidInput: One of them is in `REMOVED`.
    """
    command, *rest = [word for word in words if word != "--debug"] or [""]
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    values = [f"{option} {value}" for option, value in pairwise(rest)]
    values += [word.replace("=", " ", 1) for word in rest if word.startswith("--")]
    keys = [command, *(f"{command} {each}" for each in (*options, *values))]
    for key in keys:
        if key in REMOVED:
            raise InvalidInput(f"`advisor {key}` is no longer there. {REMOVED[key]}")
