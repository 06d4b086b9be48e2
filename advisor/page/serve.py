"""`advisor app`: serves the page, and predicts while nobody waits.

First what the page answers as it opens, while a browser starts; then what is likely asked next.
"""

import os
import signal
from contextlib import suppress
from runpy import run_module
from threading import Thread

# As a shell has it for a command that Ctrl-C ended.
_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """As the command `streamlit` with the words behind this module's name.

    An interrupt ends it quietly while it starts; once it serves, streamlit ends it, with 0.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as of a command under nohup
        signal.signal(signal.SIGINT, _leave)
    from advisor.page.more import foresee

    Thread(target=_ready_first_answer, daemon=True).start()
    Thread(target=foresee, daemon=True).start()
    run_module("streamlit", run_name="__main__", alter_sys=True)


def _leave(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


def _ready_first_answer() -> None:
    """Predict what a page asks that nobody has typed into: its answer is remembered."""
    from advisor.errors import AdvisorError
    from advisor.hardware import DEFAULT_GPU
    from advisor.measure.device import first_gpu
    from advisor.page.answer import advisor_of

    # The page says what is wrong, where it shows; and a server that ends takes no more work.
    with suppress(AdvisorError, RuntimeError):
        advisor = advisor_of(first_gpu() or DEFAULT_GPU, None)
        advisor.recommend(advisor.chosen_jobs())


if __name__ == "__main__":
    main()
