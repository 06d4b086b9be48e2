"""``--mlflow URI``, the option of commands that can log their answers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.report.mlflow_log import MlflowLog

_WORD = "--mlflow"

Mlflow = Annotated[
    str | None,
    typer.Option(_WORD, metavar="URI", help="Log it to MLflow too: a server, or sqlite:///FILE."),
]


def mlflow_log(uri: str | None) -> "MlflowLog | None":
    """The log at `uri`; None where `uri` is.

    Raises:
        AdvisorError: MLflow is not installed, or there is no such place.
    """
    if uri is None:
        return None
    from advisor.report.mlflow_log import MlflowLog

    return MlflowLog(uri)


def profiled_and_logged(words: Sequence[str], main: Callable[[Sequence[str]], int]) -> int:
    """Exit code of ``main(words)``, which measures; the profiles that it wrote are logged.

    Raises:
        InvalidInput: ``--mlflow`` has no URI.
        AdvisorError: As `mlflow_log`.
    """
    ends = words.index("--") if "--" in words else len(words)  # the rest is a script's
    ours, uri = _taken(list(words[:ends]), _WORD)
    log = mlflow_log(uri)
    began_s = time()
    code = main([*ours, *words[ends:]])
    if log is not None:
        from advisor.workload.store import read_profile

        for path in _written_since(began_s, _taken(ours, "--out")[1]):
            log.profile(read_profile(path))
    return code


def _taken(words: list[str], option: str) -> tuple[list[str], str | None]:
    """`words` without `option` and its value, and the value; None without the option."""
    for at, word in enumerate(words):
        if word == option:
            if at + 1 == len(words):
                raise InvalidInput(f"{option} needs a value after it.")
            return words[:at] + words[at + 2 :], words[at + 1]
        if word.startswith(f"{option}="):
            return words[:at] + words[at + 1 :], word.partition("=")[2]
    return words, None


def _written_since(began_s: float, out: str | None) -> list[Path]:
    from advisor.workload.files import profile_files, user_folder

    folder = user_folder("profiles") if out is None else Path(out)
    places = [folder, *(each for each in folder.glob("*") if each.is_dir())]
    files = (path for place in places for path in profile_files(place))
    # Time stamps of files may lag behind the clock.
    return sorted(path for path in files if path.stat().st_mtime > began_s - 0.1)
