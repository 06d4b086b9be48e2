"""Every view and question of the page in a real browser: drawn whole, and its points clicked."""

import pytest

from tests.browser.seen import stands, view

pytestmark = pytest.mark.browser

VIEWS = [
    "On the GPU", "Over time", "How each fares", "Beside another plan",
    "How fast is each on a MIG slice?", "How good were predictions?",
]  # fmt: skip
# The box of a turned word is some pixels wider than its letters.
_CUT = """() => [...document.querySelectorAll('svg.marks')].flatMap(svg => {
    const whole = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.width && (box.left < whole.left - 4 || box.right > whole.right + 4
            || box.bottom > whole.bottom + 4);
    }).map(text => text.textContent);
})"""
# The words come a moment after the drawing.
_SAID = """() => [...document.querySelectorAll('[data-testid=stVegaLiteChart]')]
    .every(each => (each.getAttribute('aria-label') || '').includes(';'))"""
_WIDE = """() => [...document.querySelectorAll('[data-testid=stMain] *')]
    .filter(each => ['auto', 'scroll'].includes(getComputedStyle(each).overflowX))
    .filter(each => each.clientWidth && each.scrollWidth > each.clientWidth + 2)
    .filter(each => !each.closest('[data-testid=stDataFrame]'))
    .map(each => each.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("width", [1280, 420])
def test_every_view_fits_no_word_is_cut_and_drawings_are_said_in_words(opened, width):
    page = opened(width=width)
    grids = page.locator("[data-testid=stDataFrame]:visible")
    assert grids.count() == {420: 1, 1280: 2}[width], "on a phone only that of the jobs"
    for name in VIEWS:
        view(page, name)
        page.locator("svg.marks").last.wait_for()
        stands(page)
        assert page.evaluate(_CUT) == [], name
        assert page.evaluate(_WIDE) == [], name
        page.wait_for_function(_SAID)


def test_what_is_estimated_for_another_gpu_fits_a_phone_too(opened, address):
    page = opened(f"{address}/?gpu=a100-40gb", width=420)
    page.get_by_text("estimated from other GPUs").first.wait_for()
    assert page.evaluate(_CUT) == []
    assert page.evaluate(_WIDE) == []


def test_a_link_opens_the_same_view_and_the_same_two_plans_in_a_fresh_browser(opened):
    page = opened()
    view(page, "Beside another plan")
    beside = page.get_by_role("combobox", name="Beside")
    beside.fill("serial")
    beside.press("Enter")
    page.wait_for_url("**beside=**serial**")
    again = opened(page.url).get_by_role("combobox", name="Beside")
    assert again.input_value() == beside.input_value()
