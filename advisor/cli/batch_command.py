"""``advisor batch``: which batch size fits on which slice, and what it costs."""

from functools import partial
from typing import Annotated

import typer

from advisor.cli.options import AsJson, Files, GpuKey, PowerCap, grouped
from advisor.cli.output import show_found, warn
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU

_Names = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="A job's name, with or without its batch size; or its profiles' names or files, "
        "one for each batch size.",
    ),
]
_Slices = Annotated[
    str | None,
    typer.Option(metavar="SLICES", help="MIG profiles, or whole; default: all there are."),
]
_Sizes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Batch sizes, e.g. 16,64; default: those measured, and the largest that fits.",
    ),
]
_Details = Annotated[
    bool, typer.Option("--details", help="Every size that was looked at, and its energy.")
]


@grouped
def batch(
    *,
    names: _Names,
    on: _Slices = None,
    batches: _Sizes = None,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    details: _Details = False,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """The largest batch that each slice of a GPU holds.

    And an example's time and energy, for provider and client. A job that was measured at two batch
    sizes or more is answered for at others too.
    """
    from advisor.report.slice_batches_text import slice_batches_document, slice_batches_report

    advisor = files.advisor(gpu, power_cap)
    slices = on.split(",") if on else []
    found = advisor.batches(names, on=slices, batches=_sizes(batches))
    warn(found.standing.doubts)
    report = partial(slice_batches_report, details=details or batches is not None)
    show_found(found, as_json, report, slice_batches_document)


def _sizes(word: str | None) -> tuple[int, ...]:
    sizes = word.split(",") if word else []
    if not all(each.isascii() and each.isdigit() for each in sizes):
        raise InvalidInput(f"--batches takes whole numbers, e.g. 16,64; got {word!r}")
    return tuple(map(int, sizes))
