"""Plans as files for the tools that apply them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from advisor.hardware.catalogue import Gpu
from advisor.launch import ExportFormat
from advisor.launch.commands import body, head
from advisor.launch.exports.gpu_setup import mig_parted_text, mps_text
from advisor.launch.exports.radt import radt_text, radt_wants
from advisor.launch.exports.slurm import slurm_text
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, check_memory, launch_plan
from advisor.launch.plan_file import plan_text
from advisor.prediction.mix_prediction import MixPrediction
from advisor.workload.job import Job


def commands_text(plan: LaunchPlan) -> str:
    """A script of the shell lines that apply `plan` by hand."""
    return "\n".join(["#!/usr/bin/env bash", *head(plan), *body(plan), ""])


EXPORTS: dict[ExportFormat, Callable[[LaunchPlan], str]] = {
    "commands": commands_text,
    "mps": mps_text,
    "mig-parted": mig_parted_text,
    "slurm": slurm_text,
    "radt": radt_text,
    "json": plan_text,
}
"""What writes each format; raises InvalidInput where the format cannot say a plan."""

SUFFIXES: dict[ExportFormat, str] = {
    "commands": "commands.sh",
    "mps": "mps.sh",
    "mig-parted": "mig-parted.yaml",
    "slurm": "slurm.sh",
    "radt": "radt.csv",
    "json": "json",
}
"""What the name of a file of each format ends in, after a dot."""


class ExportedPlans(NamedTuple):
    """A plan as a file; `notes`: what to know before applying it, and the file does not say."""

    text: str
    notes: tuple[str, ...]


def exported(
    jobs: Sequence[Job], gpu: Gpu, prediction: MixPrediction, form: ExportFormat
) -> ExportedPlans:
    """The plan of `jobs` that `prediction` is for, in a format of `EXPORTS`.

    Raises:
        InvalidInput: The format cannot express this plan.
        NothingFits: The jobs run out of memory, or `gpu` cannot be cut up like that.
    """
    plan = launch_plan(jobs, gpu, prediction)
    check_memory(plan, prediction)
    text = EXPORTS[form](plan)
    wanted = radt_wants(plan) if form == "radt" else ()
    return ExportedPlans(text, (*[NOT_RUN] * plan.on_mig, *wanted))
