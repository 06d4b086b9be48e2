"""Completion, as a shell asks for it."""

import pytest

from tests.cli.conftest import BERT, RESNET, SMALL


@pytest.fixture
def offered(advisor, monkeypatch):
    """Return the words that a shell gets for the last of `words`."""

    def ask(*words):
        monkeypatch.setenv("_ADVISOR_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["advisor", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        said = advisor()
        assert said.err == ""
        return said.out.split()

    return ask


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("rec",), {"recommend"}),
        (("recommend", "resnet"), {RESNET, SMALL}),
        (("recommend", "--gpu", "h200-141gb", "bert"), {BERT}),
        (("recommend", "--gpu", "l40s-48gb", "bert"), {BERT}),
        (("trials", "bert"), {BERT}),
        (("admit", "--running", "bert"), {BERT}),
        (("compare", "naive", "bert"), {BERT}),
        (("recommend", "--gpu", "h200"), {"h200-141gb"}),
        (("recommend", "--objective", "e"), {"energy"}),
        (("predict", "--sharing", "na"), {"naive"}),
        (("predict", "--sharing", "mig=3g.71gb,4"), {"mig=3g.71gb,4g.71gb"}),
        (("predict", "--gpu", "a100-40gb", "--sharing", "mig=4"), {"mig=4g.20gb"}),
        (("recommend", "nothing-like-it"), set()),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_shell_offers_what_may_stand_there(offered, words, named):
    assert set(offered(*words)) == named


def test_a_shell_offers_plan_files_where_plans_are_named(offered, tmp_path, monkeypatch):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "one.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for words in (("run",), ("simulate", "--plan"), ("compare",)):
        assert offered(*words, "plans/o") == ["plans/one.json"]


def test_a_shell_sees_no_error_whatever_is_wrong(offered, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    assert offered("recommend", "--profiles", str(tmp_path / "file"), "res") == []
    assert offered("recommend", "--gpu", "none", "--fast", "bert") == [BERT]
    assert offered("recommend", "--gpu", "none", "bert") == [BERT]
    monkeypatch.setenv("ADVISOR_PROFILES", str(tmp_path / "nowhere"))
    assert offered("recommend", "res") == []
