"""``advisor profile``, ``campaign``, ``calibrate`` and ``app``: each starts another program.

The first three also run without this command line: their words are handed on as they are, to the
same programs that ``python -m`` starts.
"""

import os
import sys
from typing import Annotated

import typer

AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def profile(context: typer.Context) -> None:
    """Measure workloads alone; --help says more."""
    from advisor.profiling import main

    raise typer.Exit(main(context.args))


def campaign(context: typer.Context) -> None:
    """Measure a plan of many mixes on one or more GPUs; --help says more."""
    from advisor.campaign import main

    raise typer.Exit(main(context.args))


def calibrate(context: typer.Context) -> None:
    """Measure this machine, so that advice is for it; --help says more."""
    from advisor.calibration import main

    raise typer.Exit(main(context.args))


def app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on localhost.")] = 8501,
) -> None:
    """Open the page at localhost, until Ctrl-C."""
    from advisor.workload.files import beside_package

    streamlit = [sys.executable, "-m", "streamlit", "run", str(beside_package("app.py"))]
    options = {
        "server.address": "127.0.0.1",
        "server.port": port,
        "server.headless": "true",  # or it asks for an e-mail address at first
        "browser.gatherUsageStats": "false",
        "server.fileWatcherType": "none",  # it would watch every file near the package
        "client.showErrorDetails": "none",  # a traceback belongs in the terminal
        "client.toolbarMode": "minimal",  # or one click deploys it somewhere
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    sys.stdout.flush()
    os.execv(sys.executable, [*streamlit, *words])  # what ends this process then ends the page
