"""Plans as files for the tools that apply them."""

from collections.abc import Callable

from advisor.planning.commands import commands
from advisor.planning.handover import Handover
from advisor.planning.plan_file import plan_text
from advisor.reporting.exports.mig_parted import mig_parted_text
from advisor.reporting.exports.mps import mps_text
from advisor.reporting.exports.radt import radt_text
from advisor.reporting.exports.slurm import slurm_text


def commands_text(plan: Handover) -> str:
    """A script of the shell lines that apply `plan` by hand."""
    return "\n".join(["#!/usr/bin/env bash", *commands(plan), ""])


EXPORTS: dict[str, Callable[[Handover], str]] = {
    "commands": commands_text,
    "mps": mps_text,
    "mig-parted": mig_parted_text,
    "slurm": slurm_text,
    "radt": radt_text,
    "json": plan_text,
}
"""What writes each format; raises InvalidInput where the format cannot say a plan."""
