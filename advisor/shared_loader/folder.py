"""The folder of a shared loader: who may enter it, and which of its processes live.

A process that lives holds the lock of its file. The kernel frees the lock when the process ends,
in whatever way, and the children of the process do not hold it.
"""

import fcntl
import os
from pathlib import Path

from advisor.errors import InvalidInput

PRODUCER, REASON, SERVED, ENDED, GONE = "producer", "reason", "served", "ended", "gone-"
"""Files: the producer's lock, why it failed, which jobs it serves, that it ended, that a job did.

Who starts these processes writes the last two: a process may fail before its lock."""

# Bytes: the path of a Unix socket is at most 107 long, also that of a worker of the loader.
_LONGEST_PATH = 107 - len("/pymp-12345678/listener-12345678")


def valid_folder(text: str) -> Path:
    """Return the folder that `text` names.

    Raises:
        InvalidInput: It is no private folder of this user, or its path is too long for sockets.
    """
    path = Path(text)
    if not path.is_absolute() or path.is_symlink() or not path.is_dir():
        raise InvalidInput(f"ADVISOR_LOADER is {text!r}. Set it to the absolute path of a folder.")
    if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o077:
        raise InvalidInput(f"{path}: other users can enter this folder. Make one with mktemp -d.")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise InvalidInput(f"{path}: the path is too long for sockets. Make the folder in /tmp.")
    return path


def hold(path: Path) -> None:
    """Make the file `path`, and hold its lock until this process ends.

    Raises:
        InvalidInput: There is such a file.
    """
    locked = path.with_name(f"{path.name}-{os.getpid()}")
    fcntl.lockf(os.open(locked, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    try:
        os.link(locked, path)
    except FileExistsError:
        raise InvalidInput(f"{path} exists. Start each shared loader in a new folder.") from None
    finally:
        locked.unlink()


def is_held(path: Path) -> bool:
    """Return whether the process that holds `path` lives; it must not be this one."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, whole or not at all."""
    part = path.with_name(f"{path.name}-part")
    part.write_text(text)
    part.rename(path)
