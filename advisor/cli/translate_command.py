"""``advisor translate``: estimates profiles for another GPU."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import AsJson, Profiles, to_write
from advisor.cli.output import show_json, show_text

_Names = Annotated[
    list[str], typer.Argument(metavar="PROFILE...", help="A profile's name, or its file.")
]
_To = Annotated[str, typer.Option("--to", metavar="GPU", help="The GPU to estimate for.")]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=to_write, help="Where to; default: your own profiles of that GPU."
    ),
]
_Calibration = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What `advisor calibrate --gpu-side` wrote on that GPU, for its measured rates; "
        "default: your own. The word none: its maker's rates.",
    ),
]
_Utilization = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of time, 0 to 1, in which nvidia-smi shows that GPU busy while each runs "
        "alone on it: the host there is taken to be as slow as that says.",
    ),
]


def translate(
    names: _Names,
    to: _To,
    out: _Out = None,
    profiles: Profiles = None,
    calibration: _Calibration = None,
    gpu_utilization: _Utilization = None,
    as_json: AsJson = False,
) -> None:
    """Estimate PROFILEs for another GPU, kernel by kernel.

    For one on which nobody measured them. Estimates are labelled, and every command takes them;
    `recommend` and the others also make them by themselves for a workload that was measured on
    another GPU only. The host's part stays as it was measured, unless --gpu-utilization tells of
    another host.
    """
    from advisor.hardware.catalogue import gpu_meant
    from advisor.prediction.estimated_profile import translated
    from advisor.report.translation_text import translations_document, translations_text
    from advisor.workload.estimates import write_estimates
    from advisor.workload.files import user_folder

    gpu = gpu_meant(to)
    found = translated(names, gpu, profiles, calibration, gpu_utilization)
    folder = out or user_folder("profiles") / gpu.key
    paths = write_estimates(folder, [after for _, after in found])
    if as_json:
        show_json(translations_document(found, paths))
    else:
        show_text(translations_text(found, paths))
