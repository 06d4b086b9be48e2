"""The `advisor` command from its first import to its end; also ``python -m advisor``."""

import gc
import os
import signal

# A shell gives this code to a command that Ctrl-C ended.
_INTERRUPTED = 128 + signal.SIGINT

# Objects from one search for garbage in cycles to the next. A process that answers once makes
# modules, a model and plans that stay, some 300,000 objects; to look through them again and again
# took a fifth of its time. What runs for long still frees its garbage.
_MANY_OBJECTS = 1_000_000


def main() -> None:
    """Run the command line; an interrupt ends it quietly, whenever it comes."""
    gc.set_threshold(_MANY_OBJECTS)
    handles = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # as of a command under nohup
    if handles:  # nothing is begun yet that would have to be cleared up
        signal.signal(signal.SIGINT, _leave)
    from advisor.cli import main as run

    if handles:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    finally:
        gc.freeze()  # Python looks for garbage in cycles once more where the process ends anyway
        if handles:  # all is cleared up; what ends now are libraries
            signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
