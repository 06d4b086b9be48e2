"""The pictures of the page in README and docs/, in its light and its dark theme.

    python -m research.pictures

Shows the first answer for the bundled jobs. Needs the extra `browser` and a chromium.
"""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from research.browser import PAGE, ROOT, THEMES, chromium, served, wait_for_answer, window

_COLOURS = 256
# Chromium draws some edges a little differently each time: of 255 levels, and in so many pixels.
_UNSEEN, _FEW = 24, 20


def picture_of(screenshot: bytes) -> Image.Image:
    """Return a screenshot with few colours, which makes a small file."""
    return Image.open(BytesIO(screenshot)).convert("RGB").quantize(_COLOURS)


def look_alike(one: Image.Image, other: Image.Image) -> bool:
    """Check that the pictures have no difference that a reader can see."""
    if one.size != other.size:
        return False
    pixels, others = (np.asarray(each.convert("RGB"), dtype=int) for each in (one, other))
    return bool((np.abs(pixels - others).max(axis=2) > _UNSEEN).sum() <= _FEW)


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
                picture = picture_of(page.screenshot(animations="disabled", caret="hide"))
            file = ROOT / "docs" / f"page-{theme}.png"
            if not file.exists() or not look_alike(picture, Image.open(file)):
                picture.save(file, "PNG", optimize=True)


if __name__ == "__main__":
    main()
