"""docs/commands.md and docs/files.md say what the command line is and writes."""

import re

import pytest

from research.files import ROOT
from research.reference import COMMANDS, FILES, commands_text, files_text, names, section
from research.terminal_output import terminal_output

STALE = "run `make report`"
HELP = (ROOT / COMMANDS).read_text()
COMMAND_NAMES = re.findall(r"^## (\S+)$", HELP, flags=re.MULTILINE)
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


def test_the_page_of_commands_names_all_that_there_are():
    assert names("\n".join(terminal_output(["--help"], 80))) == COMMAND_NAMES, STALE


@pytest.mark.parametrize("words", ["trials", "profile --from-numbers"])
def test_a_section_of_the_page_of_commands_is_what_the_command_prints(words):
    assert section(words) in HELP, STALE


@pytest.mark.exhaustive
def test_the_whole_page_of_commands_is_what_they_print():
    assert commands_text() == HELP, STALE


def test_every_command_is_shown_in_use_somewhere_else():
    written = "".join(page.read_text() for page in PAGES if page.name != COMMANDS.name)
    assert [each for each in COMMAND_NAMES if f"advisor {each}" not in written] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_command_on_a_page_has_the_options_with_which_it_is_shown(page):
    help_of = {head: "" for head in COMMAND_NAMES}
    for text in HELP.split("\n## ")[1:]:
        help_of[text.split(maxsplit=1)[0]] += text
    shown = re.findall(r"\badvisor ([a-z-]+)((?:[^\n`]|\\\n)*)", page.read_text())
    unknown = [
        f"advisor {name} {option}"
        for name, words in shown
        if name in help_of
        for option in re.findall(r"(?<!\S)--[a-z-]+", re.split(" -- | #", words)[0])
        if option not in help_of[name] and option != "--help"
    ]
    assert unknown == []


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
