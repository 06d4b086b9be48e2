"""Help: commands in groups, one text however it is asked for, and the files that `init` writes."""

import re

from advisor import __version__
from advisor.cli import COMMANDS


def test_without_a_command_every_command_is_in_one_group_of_the_help(advisor):
    text = advisor().out
    groups = re.split(r"^(?=\S.*:$)", text, flags=re.MULTILINE)
    names = {group.partition(":")[0]: re.findall(r"^  ([a-z]+)  ", group, re.M) for group in groups}
    groups = ("Ask", "Measure", "Run", "Learn", "Look up")
    assert sorted(name for group in groups for name in names[group]) == sorted(COMMANDS)
    assert len(COMMANDS) <= 25
    assert "Exit codes: 0 " in text
    assert text.endswith("advisor recommend\n")


def test_help_of_a_command_is_the_same_by_word_and_by_option(advisor):
    assert advisor("--version").out == f"advisor {__version__}\n"
    assert advisor("help").out == advisor("--help").out
    for name in ("predict", "compare", "layouts"):
        text = advisor("help", name).out
        assert text.startswith(f"Usage: advisor {name} ")
        assert text == advisor(name, "-h").out == advisor(name, "--help").out
    assert advisor("help", "fly").code == 2


def test_init_lists_the_files_that_it_writes_and_never_writes_over_one(
    advisor, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    lines = advisor("init").out.splitlines()
    assert list(tmp_path.iterdir()) == []
    for line in lines:
        assert [advisor("init", line.split()[0]).code for _ in range(2)] == [0, 2]
    assert len(list(tmp_path.iterdir())) == len(lines)
    assert all(any(path.name in line for line in lines) for path in tmp_path.iterdir())
