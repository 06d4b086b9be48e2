"""Where the journals of `advisor.launch.journal` lie, and which of them their owners left."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from advisor.measure.process.run_locks import locked_file
from advisor.workload.files import user_folder


def journal_file(gpu: str) -> Path:
    """File of the journal of the GPU with that UUID, if there is one."""
    return user_folder("journals") / f"{gpu}.jsonl"


def journal_files() -> list[Path]:
    """The user's journals, of live processes and of dead ones."""
    return sorted(user_folder("journals").glob("*.jsonl"))


def left_journals() -> Iterator[Path]:
    """The user's journals whose owners died before they had undone what they changed."""
    for path in journal_files():
        with suppress(OSError):
            if (descriptor := locked_file(path, 0, 0o600)) is not None:
                os.close(descriptor)
                if path.stat().st_size:
                    yield path
