"""``advisor predict``: what jobs do under one way of sharing."""

from typing import Annotated

import typer

from advisor.cli.options import AsJson, Files, GpuKey, Named, PowerCap, grouped
from advisor.cli.output import show_found, warn
from advisor.hardware import DEFAULT_GPU

_Sharing = Annotated[
    str,
    typer.Option(
        help="serial, naive, mps, mps=43,57, mig=3g.71gb,4g.71gb; with "
        "the jobs' numbers: mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50, mig=7g.141gb/ci=3c[1]+4c[2], "
        "naive[1,2];mps[3]."
    ),
]


@grouped
def predict(
    *,
    sharing: _Sharing = "mps",
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """Predict what the JOBs do under one way of sharing.

    Their pace, memory and power.
    """
    from advisor.report.documents import forecast_document
    from advisor.report.forecast_text import forecast_report

    advisor = files.advisor(gpu, power_cap)
    found = advisor.predict(named.chosen(advisor), sharing)
    warn(found.standing.doubts)
    show_found(found, as_json, forecast_report, forecast_document)
