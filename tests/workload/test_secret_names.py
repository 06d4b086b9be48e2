"""Secrets of a job are known by the names of its variables and options."""

import pytest

from advisor.workload.secret_names import masked_words, secret_options


@pytest.mark.parametrize("name", ["--token", "--hf-token", "--api_key", "--apikey", "--password"])
def test_the_value_of_a_secret_option_is_hidden_however_it_is_given(name):
    command = ["python", "train.py", f"{name}=hidden", name, "hidden", "--lr", "0.1"]
    assert "hidden" not in " ".join(masked_words(command))
    assert list(masked_words(command))[-2:] == ["--lr", "0.1"]
    assert secret_options(command) == (name,)


@pytest.mark.parametrize("word", ["--max-tokens", "--tokenizer", "--keypoints", "token"])
def test_options_of_a_language_model_are_no_secrets(word):
    command = ["python", "train.py", word, "512"]
    assert list(masked_words(command)) == command
    assert secret_options(command) == ()
