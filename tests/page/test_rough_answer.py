"""A rough answer stands on the page while the exact one is searched, and never afterwards."""

from concurrent.futures import Future

import pytest
from streamlit.testing.v1 import AppTest

from advisor.api import Advisor
from advisor.errors import NothingFits
from advisor.page import answer_view, answers
from advisor.page.answers import PageQuestion, advice, advisor_of, rough_advice
from advisor.plan.rules import Conditions
from advisor.report.page_jobs import WantedJob
from tests import shelf
from tests.page.seen import fill_in, outdated
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.usefixtures("shelved", "unremembered")
SMALL = "resnet26-cifar10-bs128"
ROUGH = "being worked out"


@pytest.fixture
def asked(shelved):  # noqa: ARG001
    """A question, and its jobs."""
    jobs = advisor_of(shelf.GPU, None).chosen_jobs()
    rows = tuple(WantedJob(job.name) for job in jobs)
    return PageQuestion(shelf.GPU, rows, "makespan", None, Conditions(), "p50"), jobs


class Searching(Future):
    """A search that ends when somebody waits for it."""

    def __init__(self, search, *asked, **terms):
        super().__init__()
        self._search = lambda: search(*asked, **terms)

    def exception(self, timeout=None):
        if not self.done():
            try:
                self.set_result(self._search())
            except NothingFits as error:
                self.set_exception(error)
        return super().exception(timeout)


class _Searchers:
    submit = staticmethod(Searching)


@pytest.fixture
def slow(monkeypatch):
    """No search ends before somebody notices the wait."""
    monkeypatch.setattr(answers, "_searchers", _Searchers)
    monkeypatch.setattr(answers, "_UNNOTICED_S", 0.0)


def test_few_plans_are_known_while_all_are_searched(asked, slow):  # noqa: ARG001
    rough = rough_advice(*asked)
    exact = advice(*asked)
    assert len(rough.plans) < len(exact.plans)
    assert not any(plan.commands for plan in rough.plans)
    assert rough_advice(*asked) is None, "the exact plans are known by now"


def test_where_nobody_notices_a_wait_nothing_rough_is_shown(asked, monkeypatch):
    monkeypatch.setattr(answers, "_UNNOTICED_S", PATIENCE_S)
    assert rough_advice(*asked) is None


def test_a_search_that_failed_is_tried_again(asked, slow, monkeypatch):  # noqa: ARG001
    with monkeypatch.context() as patch:
        patch.setattr(Advisor, "recommend", _fails)
        rough_advice(*asked)
        with pytest.raises(NothingFits):
            advice(*asked)
    assert advice(*asked).plans


def _fails(*_, **__):
    raise NothingFits("the search ends in nothing")


@pytest.fixture
def shown(page, monkeypatch):
    """The address, and the answer from before, whenever a rough answer is shown."""
    found = []
    show = answer_view.show_rough

    def show_rough(rough, at):
        import streamlit as st

        found.append((st.query_params.to_dict(), st.session_state.get("last answer")))
        show(rough, at)

    monkeypatch.setattr(answer_view, "show_rough", show_rough)
    return page, found


def test_the_exact_answer_takes_the_place_of_the_rough_one_which_no_link_holds(shown, slow):  # noqa: ARG001
    page, found = shown
    page.run()
    before = page.query_params["job"], page.session_state["last answer"]
    fill_in(page, SMALL, copies=4)
    assert not page.exception
    (first_link, no_answer), (link, last) = found
    assert (first_link, no_answer) == ({}, None)
    assert (link["job"], last) == (before[0][-1], before[1]), "both are of the answer from before"
    assert not any(ROUGH in each.value for each in page.info)
    assert len(page.metric) == 4
    assert page.query_params["job"] != before[0]


def test_a_rough_answer_goes_where_no_exact_one_comes(shown, slow, monkeypatch):  # noqa: ARG001
    page, found = shown
    page.run()
    monkeypatch.setattr(Advisor, "recommend", _fails)
    fill_in(page, SMALL, copies=4)
    assert not page.exception
    assert len(found) == 2
    assert "ends in nothing" in page.error[0].value
    assert outdated(page)
    assert not any(ROUGH in each.value for each in page.info)


def script():
    import streamlit as st

    from advisor.page.answer_view import answer_places, show_rough
    from advisor.page.answers import advisor_of
    from tests import shelf

    advisor = advisor_of(shelf.GPU, None)
    show_rough(advisor.recommend_roughly(advisor.chosen_jobs()), answer_places(st.container()))


def test_a_rough_answer_is_marked_and_nothing_of_it_can_be_chosen_or_taken_away():
    view = AppTest.from_function(script, default_timeout=PATIENCE_S).run()
    assert not view.exception
    (said,) = view.info
    assert "[rough]" in said.value.partition("\n")[0], "the large line"
    assert ROUGH in said.value
    assert len(view.metric) == 4
    assert not view.get("download_button")
    assert not view.selectbox
    assert not view.get("vega_lite_chart") + view.get("arrow_vega_lite_chart")
