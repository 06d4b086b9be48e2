"""``advisor app``: the page, for this machine only."""

import os
import sys
from typing import Annotated

import typer


def app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on localhost.")] = 8501,
) -> None:
    """Open the page at localhost, until Ctrl-C."""
    from advisor.workload.files import beside_package

    streamlit = [sys.executable, "-m", "streamlit", "run", str(beside_package("app.py"))]
    options = {
        "server.address": "127.0.0.1",
        "server.port": port,
        "server.headless": "true",  # or it asks a newcomer for an e-mail address
        "browser.gatherUsageStats": "false",
        "server.fileWatcherType": "none",  # it would watch every file near the package
        "client.showErrorDetails": "none",  # a traceback belongs in the terminal
        "client.toolbarMode": "minimal",  # nobody should deploy this somewhere by a stray click
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    sys.stdout.flush()
    os.execv(sys.executable, [*streamlit, *words])  # in its place: who ends us ends the page
