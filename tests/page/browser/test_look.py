"""The page in wide and narrow windows, by day and by night, and without a mouse."""

import re

import pytest

from research.browser import NARROW, THEMES, WIDE

PAGES = ("/", "/more")
LONGEST_WORDS, MOST_NUMBERS = 60, 12


def overflow_px(page):
    """How far the page reaches beyond its window."""
    return page.evaluate(
        "() => { const main = document.querySelector('[data-testid=stMain]');"
        "return Math.max(main.scrollWidth - main.clientWidth,"
        " document.documentElement.scrollWidth - window.innerWidth); }"
    )


@pytest.mark.parametrize("link", PAGES)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nobody_has_to_scroll_sideways(visit, size, link):
    assert overflow_px(visit(size).open(link)) <= 0


QUESTIONS = ("Add a job", "Several GPUs", "Largest batch")


@pytest.mark.parametrize("link", [*PAGES, *(f"/more?ask={name}" for name in QUESTIONS)])
@pytest.mark.parametrize("theme", THEMES)
def test_people_who_see_or_move_badly_can_use_the_page(visit, theme, link):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(theme=theme).open(link)
    violations = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = [
        (each["id"], each["help"], [node["html"] for node in each["nodes"]][:5])
        for each in violations
        if each["impact"] in ("serious", "critical")
    ]
    assert not bad


# The texts of the answer of which something is visible before one scrolls.
_ABOVE_THE_FOLD = """() => {
  const columns = document.querySelectorAll('[data-testid=stColumn]');
  const walker = document.createTreeWalker(columns[0], NodeFilter.SHOW_TEXT);
  const texts = [], range = document.createRange();
  while (walker.nextNode()) {
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.width > 1 && box.height > 1 && box.top < innerHeight) texts.push(range.toString());
  }
  return texts.join(' ');
}"""


def test_an_answer_is_short(visitor):
    text = visitor.open().evaluate(_ABOVE_THE_FOLD)
    words = re.findall(r"[^\W\d_][\w'-]*", text)
    numbers = re.findall(r"(?<![\w.])\d[\d,.]*", text)
    assert len(words) <= LONGEST_WORDS, text
    assert len(numbers) <= MOST_NUMBERS, text


_FOCUSED = """() => {
  let at = document.activeElement;
  while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return (at.getAttribute('aria-label') || at.innerText || at.tagName).trim().split('\\n')[0];
}"""


def test_the_keyboard_reaches_all_in_the_order_of_the_page(visitor):
    page = visitor.open()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(_FOCUSED))
    order = ["More questions", "GPU", "Goal", "Conditions", "Copy link", "CANVAS", "time-slicing"]
    assert set(order) <= set(reached), reached
    assert sorted(order, key=reached.index) == order, reached
