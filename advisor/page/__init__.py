"""The page, which `app.py` shows: its widgets, and the server that `advisor app` starts."""

import os
import signal
from runpy import run_module

_INTERRUPTED = 128 + signal.SIGINT  # a shell's exit code after Ctrl-C


def serve() -> None:
    """Run the command `streamlit` with the arguments of this process.

    An interrupt ends it quietly while it starts; then streamlit ends it with exit code 0.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(_INTERRUPTED))
    run_module("streamlit", run_name="__main__", alter_sys=True)
