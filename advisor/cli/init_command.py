"""``advisor init``: writes a file to start from."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import to_write
from advisor.cli.output import show_text
from advisor.errors import InvalidInput
from advisor.terminal import clean


class _Kind(StrEnum):
    JOBS = "jobs"
    CAMPAIGN = "campaign"
    TRACE = "trace"


_FILES = {
    _Kind.JOBS: ("jobs.toml", "advisor recommend --jobs {}"),
    _Kind.CAMPAIGN: ("campaign.toml", "advisor campaign {} --dry-run"),
    _Kind.TRACE: ("trace.csv", "advisor simulate --trace-in {}"),
}


def init(
    kind: Annotated[
        _Kind, typer.Argument(help="Jobs to share a GPU, runs to measure, or jobs that arrive.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=to_write, help="Where to write it; default: its name, here."
        ),
    ] = None,
) -> None:
    """Write a file of jobs, runs or arrivals to start from.

    Jobs for `--jobs`, a campaign's plan, or a trace, each with every field.
    """
    from importlib.resources import files

    from advisor.workload.files import is_file
    from advisor.workload.writing import write_whole

    name, example = _FILES[kind]
    path = out or Path(name)
    if is_file(path):
        raise InvalidInput(f"{clean(str(path))} exists already. Choose another file with --out.")
    text = files("advisor.workload").joinpath("templates", name).read_text(encoding="utf-8")
    write_whole(path, text)
    show_text(f"{clean(str(path))}: change it, then  {example.format(clean(str(path)))}")
