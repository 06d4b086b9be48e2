"""The page in wide and narrow windows, by day and by night, and without a mouse."""

import re

import pytest

from research.browser import NARROW, THEMES, WIDE, WIDEST

PAGES = ("/", "/more")
LONGEST_WORDS, MOST_NUMBERS = 60, 12


def overflow_px(page):
    """How far the page reaches beyond its window."""
    return page.evaluate(
        "() => { const main = document.querySelector('[data-testid=stMain]');"
        "return Math.max(main.scrollWidth - main.clientWidth,"
        " document.documentElement.scrollWidth - window.innerWidth); }"
    )


QUESTIONS = ("Add a job", "Several GPUs", "Largest batch")
LINKS = [*PAGES, "/?plan=naive", *(f"/more?ask={name}" for name in QUESTIONS)]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("size", [WIDEST, WIDE, NARROW], ids=["widest", "wide", "narrow"])
def test_nobody_has_to_scroll_sideways(visit, size, link):
    assert overflow_px(visit(size).open(link)) <= 0


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("theme", THEMES)
def test_people_who_see_or_move_badly_can_use_the_page(visit, theme, link):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(theme=theme).open(link)
    violations = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    bad = [
        (each["id"], each["help"], [node["html"] for node in each["nodes"]][:5])
        for each in violations
        if each["impact"] != "minor"
    ]
    assert not bad


# The texts of the card, without its drawing, of which something is visible before one scrolls.
_ABOVE_THE_FOLD = """() => {
  const card = document.querySelector('[data-testid=stMarkdown] h2')
    .closest('[data-testid=stColumn]');
  const walker = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
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
  if (at.tagName === 'CANVAS') return 'the table of jobs';
  const copy = at.cloneNode(true);
  copy.querySelectorAll('[data-testid=stIconMaterial]').forEach((icon) => icon.remove());
  return (at.getAttribute('aria-label') || copy.textContent).trim();
}"""


def test_the_keyboard_reaches_all_in_the_order_of_the_page(visitor):
    page = visitor.open()
    reached = []
    for _ in range(50):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(_FOCUSED))
    fields = ["One GPU", "More questions", "GPU", "Goal", "Conditions", "Copy link"]
    order = [
        *fields,
        "Get the commands",
        "the table of jobs",
        "time-slicing",
        "one after another",
        "Timeline",
    ]
    assert set(order) <= set(reached), reached
    assert sorted(order, key=reached.index) == order, reached
