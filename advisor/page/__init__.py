"""The page, which `app.py` shows: its widgets, and the server that `advisor app` starts."""

import os
import signal
import sys
from runpy import run_module

_INTERRUPTED = 128 + signal.SIGINT  # a shell's exit code after Ctrl-C


def serve() -> None:
    """Run the command `streamlit` with the arguments of this process.

    An interrupt ends it quietly, with exit code 130. Its end waits for no search, because the
    threads of the page write no file.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(_INTERRUPTED))
    try:
        run_module("streamlit", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code if isinstance(ended.code, int) else bool(ended.code))
