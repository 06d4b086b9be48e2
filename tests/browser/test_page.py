"""What somebody does on the page in a real browser, and what they see there."""

import json

import pytest

from tests.browser.seen import answer, becomes, chosen, jobs, stands, table, type_in, view

pytestmark = pytest.mark.browser

SIZES = [(width, theme) for width in (1280, 420) for theme in ("light", "dark")]
_WIDER = """() => [...document.querySelectorAll('[data-testid=stMain] *')]
    .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
    .filter(each => !each.closest('[data-testid=stDataFrame], pre, [data-baseweb=tab-list]'))
    .map(each => each.outerHTML.slice(0, 200))"""
_FOCUSED = """() => document.activeElement.getAttribute('aria-label')
    || document.activeElement.innerText.trim()"""


@pytest.mark.parametrize(("width", "theme"), SIZES)
def test_the_page_answers_at_any_width_and_nothing_is_cut(opened, width, theme):
    page = opened(width=width, theme=theme)
    assert "all done in" in answer(page)
    assert page.evaluate(_WIDER) == []
    drawn = [each.bounding_box() for each in page.locator("svg.marks:visible").all()]
    assert len(drawn) == 3
    assert all(box["width"] > 100 and box["height"] > 50 for box in drawn)


def test_a_job_has_the_same_colour_in_both_themes_and_in_every_drawing(opened):
    seen = set()
    for theme in ("light", "dark"):
        page = opened(theme=theme)
        view(page, "Over time")
        page.get_by_text("The thin line is where").wait_for()
        stands(page)
        for bar in page.locator("path[aria-roledescription=bar][aria-label*='job: ']").all():
            (said,) = [
                each for each in bar.get_attribute("aria-label").split("; ") if "job: " in each
            ]
            seen.add((said, bar.get_attribute("fill")))
    assert len(seen) == 3


def test_a_click_on_a_point_or_a_row_chooses_the_plan(opened):
    page = opened()
    point = page.locator("path[aria-roledescription=point][aria-label*='plan: 3 ']")
    assert becomes(chosen, page, point.click).startswith("3 ")
    ranking = table(page, "gain over serial")
    ranking.scroll_into_view_if_needed()
    row = {"x": 15, "y": 35 * 2.5}
    assert becomes(chosen, page, lambda: ranking.click(position=row)).startswith("2 ")


def test_a_changed_count_changes_the_answer_and_the_link_restores_it(opened):
    page = opened()
    asked = becomes(answer, page, lambda: type_in(page, 1, 1, "2"))
    again = opened(page.url)
    assert answer(again) == asked
    assert jobs(again) == jobs(page)


def test_answers_and_plans_can_be_taken_away(opened):
    page = opened()
    for label, first in (("Download as CSV", "rank,"), ("Download as JSON", "{")):
        button = page.get_by_test_id("stDownloadButton").get_by_role("button", name=label)
        assert _downloaded(page, button).startswith(first)
    view(page, "Apply it")
    button = page.get_by_test_id("stDownloadButton").get_by_role(
        "button", name="Download", exact=True
    )
    assert "CUDA_MPS" in _downloaded(page, button)


def test_the_json_that_is_taken_away_says_what_the_page_says(opened):
    page = opened()
    button = page.get_by_test_id("stDownloadButton").get_by_role("button", name="as JSON")
    best = json.loads(_downloaded(page, button))["plans"][0]
    assert chosen(page).endswith(best["sharing"])


def test_every_control_is_reached_by_keyboard_alone(opened):
    page = opened()
    wanted = {"GPU", "Best means", "Plan", "On the GPU", "Download as JSON", "How many at once?"}
    for _ in range(150):
        page.keyboard.press("Tab")
        wanted -= {page.evaluate(_FOCUSED)}
        if not wanted:
            return
    raise AssertionError(f"not reached: {wanted}")


def _downloaded(page, button):
    with page.expect_download() as given:
        button.click()
    return given.value.path().read_text()
