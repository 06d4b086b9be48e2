"""`advisor app`: serves the page, and predicts its first answer and likely next questions."""

import os
import signal
from contextlib import suppress
from runpy import run_module
from threading import Thread

_INTERRUPTED = 128 + signal.SIGINT  # a shell's exit code after Ctrl-C


def main() -> None:
    """Run the command `streamlit` with the arguments of this module.

    An interrupt ends it quietly while it starts; then streamlit ends it with exit code 0.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGINT, _leave)
    from advisor.page.more import predict_likely_questions

    Thread(target=_ready_first_answer, daemon=True).start()
    Thread(target=predict_likely_questions, daemon=True).start()
    run_module("streamlit", run_name="__main__", alter_sys=True)


def _leave(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


def _ready_first_answer() -> None:
    """Predict the answer of a page without edits, so that it is remembered."""
    from advisor.errors import AdvisorError
    from advisor.hardware import DEFAULT_GPU
    from advisor.measure.device import first_gpu
    from advisor.page.answer import advisor_of

    # The page shows the error; a server that ends accepts no work.
    with suppress(AdvisorError, RuntimeError):
        advisor = advisor_of(first_gpu() or DEFAULT_GPU, None)
        advisor.recommend(advisor.chosen_jobs())


if __name__ == "__main__":
    main()
