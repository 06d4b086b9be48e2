"""``advisor estimate-memory``: the GPU memory of a workload that was never run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from advisor.cli.options import AsJson, GpuKey, apart, given_in, grouped, needs
from advisor.cli.output import show, show_json
from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.workload.spec import Workload


@dataclass(frozen=True, slots=True)
class Described:
    """Options that describe a workload without a name in the zoo."""

    timm: Annotated[str | None, typer.Option(metavar="NAME", help="A model of timm.")] = None
    resolution: Annotated[int | None, typer.Option(help="Pixels of its images' side.")] = None
    classes: Annotated[int | None, typer.Option(help="Outputs of it.")] = None
    batch: Annotated[int | None, typer.Option(help="Examples a step.")] = None
    precision: Annotated[
        Literal["default", "tf32", "amp", "fp16"], typer.Option(help="Its number format.")
    ] = "default"

    def workload(self) -> "Workload":
        """The workload that the options describe.

        Raises:
            InvalidInput: An option is missing.
        """
        from advisor.workload.named_workloads import timm_workload

        if self.timm is None:
            raise InvalidInput(
                "name a workload that `advisor workloads` lists, or describe one with --timm NAME "
                "--resolution --classes --batch."
            )
        if self.resolution is None or self.classes is None or self.batch is None:
            raise InvalidInput(f"--timm {self.timm} needs --resolution, --classes and --batch.")
        return timm_workload(
            self.timm, resolution=self.resolution, classes=self.classes, batch=self.batch,
            precision=self.precision,
        )  # fmt: skip


@grouped
def estimate_memory(
    context: typer.Context,
    *,
    workload: Annotated[
        str | None, typer.Argument(help="A name that `advisor workloads` lists.")
    ] = None,
    described: Described,
    gpu: GpuKey = DEFAULT_GPU,
    as_json: AsJson = False,
) -> None:
    """Estimate the GPU memory of a workload that was never run. Needs torch, and no GPU."""
    from advisor.workload.named_workloads import workload as named

    given, parts = given_in(context), ("resolution", "classes", "batch", "precision")
    apart(given, "workload", ("timm", *parts), "a workload of that name says all of it.")
    for part in parts:
        needs(given, part, {"timm": "--timm NAME"})
    asked = described.workload() if workload is None else named(workload)
    _estimate(asked, gpu, as_json)


def _estimate(asked: "Workload", gpu: str, as_json: bool) -> None:
    try:
        import torch  # noqa: F401 - only to see whether it imports
    except ImportError:
        raise AdvisorError(
            "estimating memory needs torch, which is not installed. Run: pip install torch "
            "torchvision timm"
        ) from None
    from advisor.hardware.catalogue import gpu as known
    from advisor.report.listing_text import footprint_document, footprint_text
    from advisor.zoo.footprint import footprint

    found = footprint(asked, known(gpu))
    if as_json:
        show_json(footprint_document(found))
    else:
        show(footprint_text(found, known(gpu)))
