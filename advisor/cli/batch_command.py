"""``advisor batch``: the largest batch that each slice holds."""

from typing import Annotated

import typer

from advisor.cli.options import AsJson, Files, GpuKey, PowerCap, grouped
from advisor.cli.output import show_found, warn
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


@grouped
def batch(
    *,
    names: _Names,
    on: _Slices = None,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """The largest batch that each slice of a GPU holds.

    Measure the job at two batch sizes or more to learn the largest.
    """
    from advisor.report.slice_batches_text import slice_batches_document, slice_batches_report

    found = files.advisor(gpu, power_cap).batches(names, on=on.split(",") if on else [])
    warn(found.standing.doubts)
    show_found(found, as_json, slice_batches_report, slice_batches_document)
