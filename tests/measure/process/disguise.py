"""Processes that bear the name of another program, as the kernel lists them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def disguised(name: str, words: list[str]) -> str:
    """A shell command that runs Python with `words` under the name `name`."""
    python = os.path.realpath(sys.executable)
    return f"exec -a {name} {python} {' '.join(words)}"


@contextmanager
def stranger(name: str, environment: dict[str, str]) -> Iterator[int]:
    """Somebody else's process called `name`; its pid."""
    words = disguised(name, ["-c", "'import time; print(flush=True); time.sleep(600)'"])
    process = subprocess.Popen(
        ["/bin/bash", "-c", words], env=os.environ | environment, stdout=subprocess.PIPE
    )
    try:
        process.stdout.readline()  # it bears its name now
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
