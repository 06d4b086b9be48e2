"""The basis of an answer, and a check of this machine's host."""

import pytest
from streamlit.testing.v1 import AppTest

from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.page.seen import words
from tests.waiting import PATIENCE_S


def show():
    from advisor.page.answer import show_basis
    from advisor.page.question import Question, advisor_of

    question = Question("h200-141gb", "makespan", advisor_of("h200-141gb", None).chosen_jobs())
    show_basis(question, question.answer())


@pytest.fixture
def basis(shelved, unremembered):  # noqa: ARG001
    return AppTest.from_function(show, default_timeout=PATIENCE_S)


def test_no_gpu_is_here_and_the_basis_has_no_option_of_the_command(basis):
    shown = words(basis.run().markdown)
    assert not basis.button
    assert "Host not checked" in " ".join(shown)
    assert not any("--" in sentence for sentence in shown)


@pytest.mark.parametrize("problem", [None, "host not checked: no Python. Or add --no-check-host"])
def test_i_check_the_host_of_this_machine(basis, install, monkeypatch, problem):
    install(FakeLibrary(FakeGpu()))
    checks = []

    def check_host(at_once, script, say):
        checks.append((at_once, script))
        if problem:
            say(problem)

    monkeypatch.setattr("advisor.page.answer.check_host", check_host)
    (button,) = basis.run().button
    button.click().run()
    assert checks == [(3, None)]
    assert not basis.exception
    assert bool(basis.error) == bool(problem)
    assert "--" not in " ".join(words(basis.error))
