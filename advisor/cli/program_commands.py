"""``advisor profile``, ``campaign``, ``calibrate``, ``doctor``, ``app``.

All but the last also run without this command line. Their words are passed on unchanged, to the
same programs that ``python -m`` starts.
"""

import os
import sys
from typing import Annotated

import typer

from advisor.cli.output import aside
from advisor.errors import GpuUnavailable

_WITHOUT_GPU = (
    "Without one: describe the job by what its log and nvidia-smi show, `advisor profile "
    "--from-numbers --help`, or ask about one like it that was measured, `advisor profiles`."
)

_UNCALIBRATED = (
    "Advice needs no calibration: without one its ranges allow for slower and faster hosts."
)

AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def as_given(words: list[str], rest: list[str]) -> list[str]:
    """`words` and the `rest` after ``--``, such that typer passes a script's own words on."""
    return words + rest[: words[:1] == ["profile"]] + rest


def profile(context: typer.Context) -> None:
    """Measure workloads, or a script of your own, alone.

    With --mlflow URI, what is measured is logged to MLflow too.
    """
    from advisor.cli.tracking_options import profiled_and_logged
    from advisor.profiling import main

    code = profiled_and_logged(context.args, main)
    if code == GpuUnavailable.exit_code:
        aside(_WITHOUT_GPU)
    raise typer.Exit(code)


def campaign(context: typer.Context) -> None:
    """Measure a plan of many mixes on one or more GPUs."""
    from advisor.campaign import main

    raise typer.Exit(main(context.args))


def calibrate(context: typer.Context) -> None:
    """Measure this machine, so that advice is for it."""
    from advisor.calibration import main

    code = main(context.args)
    if code == GpuUnavailable.exit_code:
        aside(_UNCALIBRATED)
    raise typer.Exit(code)


def doctor(context: typer.Context) -> None:
    """Say what on this machine spoils measuring or sharing.

    With --undo, first undo what killed scripts and measurements left.
    """
    from advisor.doctor import main

    words = [word for word in context.args if word != "--undo"]
    if len(words) < len(context.args):
        from advisor.run import undo_left

        for line in undo_left():
            aside(line)
    raise typer.Exit(main(words))


def app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on localhost.")] = 8501,
) -> None:
    """Open the page at localhost, until Ctrl-C."""
    from advisor.workload.files import beside_package

    server = [sys.executable, "-m", "advisor.page.serve", "run", str(beside_package("app.py"))]
    options = {
        "server.address": "127.0.0.1",
        "server.port": port,
        "server.maxUploadSize": 8,  # MiB; our largest profile has a sixth of one
        "server.headless": "true",  # or it asks for an e-mail address at first
        "browser.gatherUsageStats": "false",
        "server.fileWatcherType": "none",  # it would watch every file near the package
        "client.showErrorDetails": "none",  # a traceback belongs in the terminal
        "client.toolbarMode": "minimal",  # or one click deploys it somewhere
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    sys.stdout.flush()
    os.execv(sys.executable, [*server, *words])  # what ends this process then ends the page
