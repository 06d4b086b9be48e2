"""docs/commands.md and docs/files.md say what the command line is and writes."""

import re

import pytest

from research.reference import COMMANDS, FILES, commands_text, files_text, names
from research.terminal_output import ROOT, terminal_output

STALE = "run `make report`"
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.fixture(scope="module")
def commands():
    return names("\n".join(terminal_output(["--help"], 80)))


def test_the_page_of_commands_is_what_they_print(commands):
    text = commands_text()
    assert (ROOT / COMMANDS).read_text() == text, STALE
    assert re.findall(r"^## (\S+)$", text, flags=re.MULTILINE) == commands
    assert {"recommend", "profile", "app"} <= set(commands)


def test_every_command_is_shown_in_use_somewhere_else(commands):
    written = "".join(page.read_text() for page in PAGES if page.name != COMMANDS.name)
    assert [each for each in commands if f"advisor {each}" not in written] == []


def test_the_page_of_files_shows_what_init_writes():
    text = (ROOT / FILES).read_text()
    assert files_text(text) == text, STALE
    for kind in ("jobs", "campaign", "trace"):
        assert f"advisor init {kind}" in text


def test_a_name_is_a_word_at_the_head_of_a_line_of_the_list_and_nothing_before_or_below_it():
    shown = (
        "Options:\n  -h  Help.\n\nCommands:\n  run     Run a\n          plan.\n  stop  End it.\n"
    )
    assert names(shown) == ["run", "stop"]
