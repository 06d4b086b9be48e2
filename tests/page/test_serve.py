"""What `advisor app` does before anybody looks at the page."""

import pytest

from advisor.page import serve
from advisor.prediction.predictor import Predictor


@pytest.mark.usefixtures("unremembered")
def test_the_first_answer_is_known_before_the_page_is_opened(page, monkeypatch):
    serve._ready_first_answer()

    def predict(*_):
        raise AssertionError("asked again")

    monkeypatch.setattr(Predictor, "predict", predict)
    page.run()
    assert not page.exception
    assert page.success[0].value.startswith("### ")


def test_where_nothing_is_measured_the_server_starts_all_the_same(elsewhere):
    serve._ready_first_answer()
    assert list(elsewhere.iterdir()) == []
