"""The second page: more questions about the same jobs."""

import pytest


@pytest.mark.parametrize("question", [
    "How many at once?", "What may be added?", "Several GPUs?", "How fast is each on a MIG slice?",
    "How good were predictions?", "What runs here now?",
])  # fmt: skip
def test_each_further_question_opens(more_page, question):
    more_page.session_state["question"] = question
    more_page.run()
    assert not [*more_page.exception, *more_page.error]
