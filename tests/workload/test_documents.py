"""Documents that users hand in: read as they are, or refused with their place."""

import json

import pytest

from advisor.errors import InvalidInput
from advisor.workload.documents import parse_json, read_json, read_toml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: it is empty"),
        ("a = [1]", "not JSON: it is TOML"),
        ("{", "not JSON"),
        ("\x00", "not JSON"),
        (b"\xff", "not JSON"),
        ('{"a": 1, "a": 1}', "'a' occurs twice"),
        ('{"b": [{"a": 1, "\\u0061": 2}]}', "'a' occurs twice"),
        ("[NaN]", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("9" * 5000, "not JSON"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep"),
        ("[" * 100_000, "nested more than 64 deep"),
        ('{"a":' * 100_000, "nested more than 64 deep"),
    ],
)
def test_json_that_is_none_or_says_a_thing_twice_is_refused(text, said):
    with pytest.raises(InvalidInput, match=rf"^here: .*{said}.*\. Correct it\.$"):
        parse_json(text, "here", "Correct it.")


@pytest.mark.parametrize("text", ["1", '"a"', "null", "[]", '{"a":{"a":1}}', "[" * 64 + "]" * 64])
def test_other_json_is_read_as_it_is(text, tmp_path):
    (tmp_path / "it.json").write_text(text)
    assert read_json(tmp_path / "it.json") == json.loads(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 3000 + "]" * 3000, "nested more than 64 deep"),
        ("a = " + "{b = " * 3000 + "1" + "}" * 3000, "nested more than 64 deep"),
        (".".join("a" * 3000) + " = 1", "nested more than 64 deep"),
        ("a = 1\na = 2", "overwrite"),
        ("a", "Expected"),
        (b"a = '\xff'", "no text in UTF-8"),
        ('{"a": [1]}', "JSON, and TOML is wanted"),
        ("a = 1" + "0" * 5000, "4300"),
    ],
)
def test_toml_that_is_none_is_refused_with_its_path(text, said, tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=rf"jobs\.toml: .*{said}.*Correct the file"):
        read_toml(path)
