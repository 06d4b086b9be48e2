"""What somebody sees who changes what is asked before the last answer stands."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.seen import answer, fill_cell, stands, type_in
from tests.browser.served import page_server

pytestmark = pytest.mark.browser

# Python imports a module of this name when it starts: all searches wait for a file.
_SLOWLY = """
from pathlib import Path
from time import sleep
from advisor.api import Advisor

whole = Advisor.recommend

def recommend(*asked, **terms):
    while not (Path(__file__).parent / "go on").exists():
        sleep(0.05)
    return whole(*asked, **terms)

Advisor.recommend = recommend
"""


@pytest.fixture
def slow(browser, tmp_path):
    """A page whose searches go on only while a file is there, and the file."""
    (tmp_path / "sitecustomize.py").write_text(_SLOWLY)
    (gate := tmp_path / "go on").touch()
    with page_server(tmp_path, also=tmp_path) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        stands(page)
        yield page, gate
        gate.touch()
        page.close()


def test_a_rough_answer_stands_marked_until_the_exact_one_takes_its_place(slow):
    page, gate = slow
    before, link = answer(page), page.url
    gate.unlink()
    type_in(page, 1, 1, "4")
    rough = page.locator(".st-key-rough-answer")
    rough.wait_for()
    assert rough.locator("h3").inner_text().startswith("rough")
    assert "being worked out" in rough.inner_text()
    assert page.url == link
    gate.touch()
    rough.wait_for(state="detached")
    stands(page)
    assert answer(page) != before
    assert not answer(page).startswith("rough")
    assert "resnet26-cifar10-bs128:4:150" in _asked(page)


def test_who_types_on_while_an_answer_is_worked_out_loses_nothing(slow):
    page, gate = slow
    gate.unlink()
    type_in(page, 0, 1, "2")
    page.locator(".st-key-rough-answer").wait_for()
    fill_cell(page, 1, 1, "3")
    gate.touch()
    page.locator(".st-key-rough-answer").wait_for(state="detached")
    stands(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**%3A3%3A150**")
    stands(page)
    assert _asked(page)[:2] == ["resnet50-imagenet64-bs128:2:1", "resnet26-cifar10-bs128:3:150"]


def _asked(page):
    return parse_qs(urlsplit(page.url).query)["job"]
