"""A user visits the page with a browser, and the page answers."""

import re
from urllib.parse import quote

import pytest

from advisor.workload.store import profile_paths
from research.browser import LOOKED_AT, click_way
from tests.page.test_page import MINE

expect = pytest.importorskip("playwright.sync_api").expect


def test_the_page_opens_with_an_answer(visitor):
    page = visitor.open()
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(visitor.answer).to_contain_text("min")
    assert visitor.problems.count() == 0


def test_more_copies_of_a_job_change_the_answer_and_the_link(visitor):
    page = visitor.open()
    before = visitor.answer.inner_text()
    visitor.type_in(0, 1, "2")
    expect(visitor.answer).not_to_have_text(before)
    expect(page).to_have_url(re.compile(r"jobs=[^&]*%3A2"))


def test_a_profile_that_i_drop_has_its_row(visitor):
    page = visitor.open()
    before = visitor.answer.inner_text()
    file = {"name": "mine.json", "mimeType": "application/json", "buffer": MINE}
    page.get_by_test_id("stFileUploader").locator("input[type=file]").set_input_files(file)
    expect(visitor.cell("my-job")).to_be_attached()
    expect(visitor.answer).not_to_have_text(before)


def test_a_click_on_a_row_shows_that_way_beside_the_best(visitor):
    page = visitor.open()
    best = visitor.answer.inner_text()
    click_way(page, "MIG")
    expect(page.locator(LOOKED_AT)).to_contain_text("MIG")
    expect(page).to_have_url(re.compile("plan="))
    expect(visitor.answer).to_have_text(best)
    page.get_by_role("button", name="Back to the best").click()
    expect(page.locator(LOOKED_AT)).to_have_count(0)
    expect(page).not_to_have_url(re.compile("plan="))


def test_the_keyboard_chooses_a_way(visitor):
    page = visitor.open()
    page.get_by_role("button", name="time-slicing").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(LOOKED_AT)).to_contain_text("time-slicing")


def test_the_browsers_back_undoes_one_step(visitor):
    page = visitor.open()
    click_way(page, "time-slicing")
    expect(page.locator(LOOKED_AT)).to_contain_text("time-slicing")
    click_way(page, "MIG")
    expect(page.locator(LOOKED_AT)).to_contain_text("MIG")
    page.go_back()
    expect(page.locator(LOOKED_AT)).to_contain_text("time-slicing")
    page.go_back()
    expect(page.locator(LOOKED_AT)).to_have_count(0)


@pytest.mark.parametrize("name", ["One GPU", "More questions"])
def test_a_copied_link_opens_the_same_answer(visit, name):
    visitor = visit()
    page = visitor.open()
    visitor.type_in(1, 1, "3")
    expect(page).to_have_url(re.compile(r"%3A3"))
    page.get_by_role("link", name=name).first.click()
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_test_id("stToast")).to_contain_text("Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert all(f"{key}=" in link for key in ("gpu", "goal", "jobs"))
    friend = visit()
    friend.page.goto(link)
    expect(friend.answer).to_have_text(visitor.answer.inner_text())


@pytest.mark.parametrize(
    ("link", "key"),
    [
        ("/?jobs=%5Bx%5D(http://example.com/),a:b", "jobs"),
        ("/?jobs=http://example.com", "jobs"),
        ("/?jobs=WWW.example.com", "jobs"),
        ("/?jobs=a@b.example.com", "jobs"),
        ("/more?ask=nonsense", "ask"),
    ],
)
def test_a_bad_link_gets_a_sentence_with_its_key(visitor, link, key):
    page = visitor.open(link)
    expect(visitor.problems.first).to_contain_text(key)
    assert page.get_by_test_id("stException").count() == 0
    assert "Traceback" not in page.get_by_test_id("stMain").inner_text()
    assert page.get_by_test_id("stMain").locator("a[href*='example.com']").count() == 0


def test_more_questions_are_about_the_same_jobs(visitor):
    page = visitor.open()
    visitor.type_in(0, 1, "2")
    expect(page).to_have_url(re.compile(r"%3A2"))
    page.get_by_role("link", name="More questions").first.click()
    expect(visitor.answer).to_contain_text("trials")
    page.get_by_test_id("stButtonGroup").get_by_text("Several GPUs").click()
    expect(visitor.answer).to_contain_text("4 jobs")
    page.get_by_label("Number of").fill("3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("gpus=3"))
    expect(visitor.answer).to_contain_text("on 3")


MANY = ",".join(f"{name}:3" for name in sorted(profile_paths("h200-141gb"))[:16])


@pytest.mark.parametrize("link", ["/", "/more?ask=Several+GPUs&gpus=2"])
def test_a_search_ends_when_i_stop_it_and_begins_when_i_ask_again(visitor, link):
    page = visitor.page
    page.goto(f"{visitor.address}{link}{'&' if '?' in link else '?'}jobs={quote(MANY)}")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(visitor.problems.first).to_contain_text("Search stopped")
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    page.get_by_role("button", name="Search again").click()
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
