"""Finds shipped data and the user's own, and reads and checks files that users name.

Needs the standard library only. Refuses other than regular files, and large ones, unread.
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

from advisor.errors import InvalidInput


class NewerFile(InvalidInput):
    """A file that a newer advisor wrote."""


def refuse_newer(document: Any, where: object, newest: int = 1) -> None:
    """Refuse a `document` that a newer advisor wrote, before its new fields are called wrong.

    Raises:
        InvalidInput: Its schema is above `newest`.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, int) and schema > newest:
        raise NewerFile(
            f"{where}: it has schema {schema}, and this advisor reads {newest}. Update the "
            f"advisor: `git pull` in its clone, then install it again."
        )


Kind = Literal["profiles", "models", "calibrations", "gpus"]

# The fitted model of all GPUs.
MODEL_FILE = "sharing.json"

_PACKAGE = Path(__file__).resolve().parent.parent


def beside_package(name: str) -> Path:
    """Return the path of shipped data: next to the package in a checkout, inside it in a wheel."""
    # In a checkout the packaged copy is stale: an editable install leaves one behind.
    in_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    return _PACKAGE.parent / name if in_checkout else _PACKAGE / "_shipped" / name


def shown(path: Path) -> str:
    """Return `path` for messages; a file of the package is called shipped or bundled."""
    for kind in ("profiles", "models"):
        if path.is_relative_to(folder := beside_package(kind)):
            return f"the shipped {kind}, {path.relative_to(folder)}"
    return f"the bundled {path.name}" if path.is_relative_to(_PACKAGE) else str(path)


def profile_files(folder: Path) -> list[Path]:
    """Return the profile files in `folder`, those of one GPU; none if there is no such folder."""
    return sorted(folder.glob("*.json")) if is_folder(folder) else []


def user_folder(kind: Kind) -> Path:
    """Return the user's own folder of `kind`, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "advisor" / kind


def cache_folder(kind: Literal["engine", "factors", "host", "inductor"]) -> Path:
    """Return the folder for caches that outlive a run, by the same specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "advisor" / kind


# The largest file written here, a fitted model, has 2 MiB; a million arrivals in a CSV, 40 MiB.
MOST_BYTES = 128 * 2**20

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a user's regular file of `most` bytes at most.

    Raises:
        InvalidInput: There is no such file, or it cannot be read.
    """
    try:
        if not stat.S_ISREG((status := path.stat()).st_mode):
            raise InvalidInput(f"{shown(path)}: it is {kind_of(status)}. Name a regular file.")
        content = b""
        if (size := status.st_size) <= most:
            with path.open("rb") as file:
                content = file.read(most + 1)
            size = len(content)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{shown(path)}: {reason_of(error)}. Check the path.") from None
    if size > most:
        raise InvalidInput(f"{shown(path)}: it has more than {most // 2**20} MiB. Check the path.")
    return content


_Read = TypeVar("_Read")


def read_once(most: int) -> Callable[[Callable[[Path], _Read]], Callable[[Path], _Read]]:
    """Wrap a reader of files: a file is read again only after a change; `most` are cached."""

    def wrap(read: Callable[[Path], _Read]) -> Callable[[Path], _Read]:
        @lru_cache(most)
        def read_version(path: Path, _version: tuple[int, ...]) -> _Read:
            return read(path)

        @wraps(read)
        def read_now(path: Path) -> _Read:
            try:
                now = path.stat()
            except (OSError, ValueError):
                return read(path)  # which says what is wrong with it
            return read_version(path, (now.st_ino, now.st_size, now.st_mtime_ns))

        return read_now

    return wrap


@contextmanager
def located(where: object, remedy: str = "") -> Iterator[None]:
    """Prefix errors raised in the block with `where`, and end them with `remedy`."""
    try:
        yield
    except InvalidInput as error:
        text = f"{str(error).removesuffix('.')}. {remedy}" if remedy else str(error)
        raise InvalidInput(f"{where}: {text}") from None


def is_folder(path: Path) -> bool:
    """Return whether it is a folder; False for a name that is too long for a file."""
    return os.path.isdir(path)  # noqa: PTH112 - pathlib raises an error then


def is_file(path: Path) -> bool:
    """Return whether it is a regular file; see `is_folder`."""
    return os.path.isfile(path)  # noqa: PTH113 - pathlib raises an error then


def present_folder() -> Path:
    """Return the folder that this process is in, which other processes are started in too."""
    try:
        return Path.cwd()
    except OSError:
        raise InvalidInput("the current folder no longer exists. Change into another.") from None


def kind_of(status: os.stat_result) -> str:
    """Return the kind of a file with this `status`, in words."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file")


def reason_of(error: OSError | ValueError) -> str:
    """Return why the system refused a path, in words; a ValueError means an impossible path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


REMOVED_FIELDS = frozenset({"gpu_side", "mps_client_priority", "patience_s", "read_from", "to_end"})
"""Fields of files that earlier versions wrote; readers ignore them."""

# Ours have 90 KiB at most, and the standard library reads a megabyte a second.
MOST_TOML_BYTES = 2**20
# Ours are nested 8 deep at most.
_DEEPEST = 64


def read_json(path: Path, remedy: str = "Correct the file.") -> Any:
    """Read the JSON document in `path`; see `parse_json`."""
    return parse_json(read_bytes(path), shown(path), remedy)


def parse_json(text: str | bytes, where: str, remedy: str = "Correct the file.") -> Any:
    """Parse the JSON document `text`; messages call it `where` and end with `remedy`.

    Raises:
        InvalidInput: It is not JSON, an object has a key twice, a number is not finite, or it is
            nested too deep.
    """
    document = load_json(text, where, remedy)
    with _parsing("JSON", where, remedy):
        _refuse_deep(document)
    refuse_newer(document, where)
    return document


def load_json(text: str | bytes, where: str, remedy: str) -> Any:
    """Parse `text` as `parse_json` does, however deep and of whatever schema."""
    with _parsing("JSON", where, remedy):
        return json.loads(text, object_pairs_hook=kept_fields, parse_constant=_refuse_constant)


def read_toml(path: Path) -> dict[str, Any]:
    """Read the TOML document in `path`; see `parse_toml`."""
    return parse_toml(read_bytes(path, MOST_TOML_BYTES), shown(path))


def parse_toml(text: bytes, where: str) -> dict[str, Any]:
    """Parse the TOML document `text`; messages call it `where`.

    Raises:
        InvalidInput: It is not TOML, too large, or nested too deep.
    """
    if len(text) > MOST_TOML_BYTES:
        raise InvalidInput(f"{where}: more than {MOST_TOML_BYTES:,} bytes. Correct the file.")
    import tomllib  # not at the top: a script that is measured may run on Python 3.10

    with _parsing("TOML", where, "Correct the file: text is in quotes, and numbers are not."):
        document = tomllib.loads(text.decode("utf-8-sig"))
        _refuse_deep(document)
    return document


@contextmanager
def _parsing(form: str, where: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except (InvalidInput, RecursionError, ValueError) as error:
        reason, _, _ = str(error).partition("; use sys.")  # Python's hint for programmers
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not text in UTF-8"
        elif isinstance(error, RecursionError):
            reason = _TOO_DEEP
        raise InvalidInput(f"{where}: not valid {form}: {reason}. {remedy}") from None


_TOO_DEEP = f"nested deeper than {_DEEPEST} levels"


def _refuse_deep(document: Any) -> None:
    level: list[Any] = [[document]]
    for _ in range(_DEEPEST + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidInput(_TOO_DEEP)


def kept_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the JSON object of these `pairs`, all of other keys, without `REMOVED_FIELDS`."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidInput(f"{twice!r} occurs twice")
    if REMOVED_FIELDS.isdisjoint(entries):
        return entries
    return {name: value for name, value in entries.items() if name not in REMOVED_FIELDS}


def _refuse_constant(word: str) -> Any:
    raise InvalidInput(f"{word} is not a finite number")
