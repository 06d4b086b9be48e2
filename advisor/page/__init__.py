"""The page, which `app.py` shows: its widgets, and the server that `advisor app` starts."""

import os
import signal
from runpy import run_module
from threading import Thread

_INTERRUPTED = 128 + signal.SIGINT  # a shell's exit code after Ctrl-C


def serve() -> None:
    """Run the command `streamlit` with the arguments of this process, and predict answers ahead.

    An interrupt ends it quietly while it starts; then streamlit ends it with exit code 0.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(_INTERRUPTED))
    from advisor.page.more import predict_likely_questions

    Thread(target=predict_likely_questions, daemon=True).start()
    run_module("streamlit", run_name="__main__", alter_sys=True)
