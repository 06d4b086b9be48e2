import pytest

from advisor.cli import REMOVED


@pytest.mark.parametrize("words", REMOVED)
def test_a_removed_word_is_wrong_use_and_its_remedy_is_named(advisor, words):
    ended = advisor(*words.split())
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert REMOVED[words] in ended.err


def test_a_removed_word_is_refused_after_other_options_too(advisor):
    for words in REMOVED:
        command, *option = words.split()
        if option:
            assert REMOVED[words] in advisor(command, "job", "=".join(option)).err
