"""Plans as files for the tools that apply them: the table of formats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.launch import ExportFormat
from advisor.launch.kubernetes import image_wanted, kubernetes_text, mig_parted_text
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan
from advisor.launch.plan_file import plans_text, run_wants
from advisor.launch.radt import radt_text, radt_wants
from advisor.launch.shell import commands_text, mps_text
from advisor.launch.slurm import slurm_text

Plans = Sequence[LaunchPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of plans.

    Attributes:
        write: Returns the text of the plan of each GPU; raises InvalidInput if the format cannot
            express one.
        file_end: End of the name of a file, after a dot.
        several_gpus: Whether the plan may be for several GPUs.
        wants: Returns notes on what the user has to fill in.
    """

    write: Callable[[Plans], str]
    file_end: str
    several_gpus: bool = True
    wants: Callable[[Plans], tuple[str, ...]] = lambda _: ()


FORMATS: dict[ExportFormat, Format] = {
    "commands": Format(write=commands_text, file_end="commands.sh"),
    "mps": Format(write=mps_text, file_end="mps.sh", several_gpus=False),
    "mig-parted": Format(write=mig_parted_text, file_end="mig-parted.yaml"),
    "kubernetes": Format(write=kubernetes_text, file_end="kubernetes.yaml", wants=image_wanted),
    "slurm": Format(write=slurm_text, file_end="slurm.sh"),
    "radt": Format(write=radt_text, file_end="radt.csv", several_gpus=False, wants=radt_wants),
    "json": Format(write=plans_text, file_end="json", wants=run_wants),
}


def check_format(form: ExportFormat, gpus: int, gres_name: str | None) -> None:
    """Check what `exported` will get, before so many GPUs are planned.

    Raises:
        InvalidInput: The format is for one GPU, or has no names of GPUs.
    """
    if gres_name and form != "slurm":
        raise InvalidInput(f"--gres-name is for --format slurm, not {form}.")
    if gpus > 1 and not FORMATS[form].several_gpus:
        several = ", ".join(name for name, each in FORMATS.items() if each.several_gpus)
        raise InvalidInput(f"--format {form} is for one GPU. For several use {several}.")


def exported(
    plans: Plans, form: ExportFormat, gres_name: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """Write the plan of each GPU in a format of `FORMATS`.

    Args:
        plans: The plan of each GPU.
        form: The format.
        gres_name: Names of GPUs for Slurm, as `slurm_text` has it.

    Returns:
        The text, and notes on what to know before applying it.

    Raises:
        InvalidInput: The format cannot express the plans.
    """
    row = FORMATS[form]
    text = slurm_text(plans, gres_name) if gres_name else row.write(plans)
    return text, (*[NOT_RUN] * any(plan.on_mig for plan in plans), *row.wants(plans))
