"""The README's pictures of the page: the first screen, on light and on dark ground.

    make picture

Starts `advisor app`, opens the page in the chromium or Chrome on PATH, and writes
docs/page-light.png and docs/page-dark.png.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.browser.seen import stands
from tests.browser.served import page_server, started_browser

_DOCS = Path(__file__).parents[1] / "docs"
_SIZE = {"width": 1280, "height": 980}
_THEMES = ("light", "dark")


def take(browser: Any, address: str, theme: str) -> None:
    """Write the picture of `theme`."""
    page = browser.new_page(viewport=_SIZE, color_scheme=theme)
    page.goto(address)
    stands(page)
    page.screenshot(path=_DOCS / f"page-{theme}.png")
    page.close()


def main() -> None:
    with (
        TemporaryDirectory() as folder,
        page_server(Path(folder)) as address,
        started_browser() as browser,
    ):
        for theme in _THEMES:
            take(browser, address, theme)


if __name__ == "__main__":
    main()
