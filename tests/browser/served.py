"""The page as `advisor app` serves it, and a browser to look at it with."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

_CHROMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
_START_S = 60.0


@contextmanager
def started_browser() -> Iterator[Any]:
    """A browser of Playwright's kind, without a window.

    Raises:
        SystemExit: There is none on PATH.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chrome())
        try:
            yield browser
        finally:
            browser.close()


def _chrome() -> str:
    found = next(filter(None, map(shutil.which, _CHROMES)), None)
    if found is None:
        raise SystemExit(
            f"no browser on PATH (looked for {', '.join(_CHROMES)}): "
            "install one, as with `apt-get install chromium`"
        )
    return found


@contextmanager
def page_server(folder: Path, also: Path | None = None) -> Iterator[str]:
    """The address of the page, served by a process whose files of all kinds lie in `folder`.

    Modules are found in the folder `also` first.

    Raises:
        SystemExit: It does not answer.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "advisor", "app", "--port", str(port)]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            words, cwd=folder, env=_only_in(folder, also), stdout=log, stderr=log
        )
        try:
            _wait(address, folder / "server.log")
            yield address
        finally:
            server.terminate()
            server.wait()


def _only_in(folder: Path, also: Path | None) -> Mapping[str, str]:
    kinds = ("HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    here = str(Path(__file__).parents[2])
    path = here if also is None else os.pathsep.join((str(also), here))
    return os.environ | dict.fromkeys(kinds, str(folder)) | {"PYTHONPATH": path}


def _wait(address: str, log: Path) -> None:
    until = monotonic() + _START_S
    while monotonic() < until:
        try:
            with urlopen(f"{address}/_stcore/health"):
                return
        except URLError:
            sleep(0.02)
    raise SystemExit(f"the page does not answer within {_START_S:g} s: {log.read_text()[-2000:]}")
