"""The pictures of the page in README and docs/, in its light and its dark theme.

    python -m research.pictures

Shows the first answer for the bundled jobs. Needs the extra `browser` and a chromium.
"""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from research.browser import PAGE, ROOT, THEMES, chromium, served, wait_for_answer, window

_COLOURS = 64


def small_png(screenshot: bytes) -> bytes:
    """Return a PNG file with few colours."""
    file = BytesIO()
    whole = Image.open(BytesIO(screenshot)).convert("RGB")
    whole.quantize(_COLOURS).save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> None:
    with (
        TemporaryDirectory() as folder,
        served(PAGE, Path(folder)) as address,
        chromium() as browser,
    ):
        for theme in THEMES:
            with window(browser, theme=theme) as page:
                page.goto(address)
                wait_for_answer(page)
                picture = page.screenshot(animations="disabled", caret="hide")
            (ROOT / "docs" / f"page-{theme}.png").write_bytes(small_png(picture))


if __name__ == "__main__":
    main()
