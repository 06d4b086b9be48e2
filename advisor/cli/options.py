"""The words that several commands take."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from advisor.errors import InvalidInput

DEFAULT_GPU = "h200-141gb"


def _key(word: str) -> str:
    from advisor.hardware.catalogue import gpu_meant

    return gpu_meant(word).key


Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="NAME[:COPIES], or the path of a profile."),
]
JobFile = Annotated[
    Path | None, typer.Option("--jobs", metavar="FILE", help="A TOML file of jobs instead.")
]
GpuKey = Annotated[
    str,
    typer.Option(
        "--gpu", callback=_key, envvar="ADVISOR_GPU", help="A GPU that `advisor gpus` lists."
    ),
]
Profiles = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        envvar="ADVISOR_PROFILES",
        help="Folder of profiles instead of the shipped ones.",
    ),
]
Models = Annotated[
    Path | None,
    typer.Option(
        "--models",
        metavar="DIR",
        envvar="ADVISOR_MODELS",
        help="Folder of models instead of the shipped ones.",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="What `advisor calibrate` wrote, or none; default: your own of that GPU.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
By = Annotated[
    Literal[
        "makespan",
        "throughput",
        "mean-completion",
        "energy",
        "energy-epoch",
        "energy-example",
        "fairness",
        "deadlines",
    ],
    typer.Option("--objective", help="What the best plan is best at."),
]
PowerCap = Annotated[
    float | None,
    typer.Option("--power-cap", metavar="W", help="Watts that the GPU may draw at most."),
]
CapOrAuto = Annotated[
    str | None,
    typer.Option(
        "--power-cap",
        metavar="W|auto",
        help="Watts that the GPU may draw at most; auto: a plan may choose 90, 80, 70 or 60 % of "
        "the GPU's limit.",
    ),
]
AUTO = "auto"
Top = Annotated[int, typer.Option("--top", min=1, help="How many plans at most.")]
Device = Annotated[str, typer.Option("--device", help="The GPU's index or UUID.")]


def cap_w(word: str | None) -> float | None:
    """Watts that ``--power-cap`` says; None where it says none, or leaves them to the plans.

    Raises:
        InvalidInput: It says something else.
    """
    if word in (None, AUTO):
        return None
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(f"--power-cap takes watts, or {AUTO}; got {word!r}") from None
