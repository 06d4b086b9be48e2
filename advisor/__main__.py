"""The `advisor` command from its first import to its end; also ``python -m advisor``."""

import os
import signal

# As a shell has it for a command that Ctrl-C ended.
_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run the command line; an interrupt ends it quietly, whenever it comes."""
    handles = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # as of a command under nohup
    if handles:  # nothing is begun yet that would have to be cleared up
        signal.signal(signal.SIGINT, _leave)
    from advisor.cli import main as run

    if handles:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    finally:
        if handles:  # all is cleared up; what ends now are libraries
            signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
