"""docs/questions.md answers the questions of the list, by commands that still work."""

import re
import shlex
from dataclasses import replace
from subprocess import CalledProcessError

import pytest

from research.questions import COLUMNS, FILE, QUESTIONS

PAGE = FILE.read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
STALE = "run `make report`"


def commands_of(section):
    """The command lines that a section shows, as a shell reads them."""
    shown = re.findall(r"^\$ ((?:.*\\\n)*.*)$", section, flags=re.MULTILINE)
    return [shlex.split(each.replace("\\\n", "")) for each in shown]


def blocks_of(section):
    """What each command of a section is shown with, its own line first."""
    return re.findall(r"^```\n(.*?)\n```$", section, flags=re.DOTALL | re.MULTILINE)


def test_the_page_has_the_ten_questions_of_the_list_in_their_order():
    asked = [section.splitlines()[0] for section in SECTIONS]
    assert asked == [f"{at}. {each.asked}" for at, each in enumerate(QUESTIONS, 1)], STALE
    assert len(QUESTIONS) == len(set(QUESTIONS)) == 10


@pytest.mark.parametrize("at", range(10))
def test_each_section_shows_its_commands_their_answers_and_how_to_read_them(at):
    question, section = QUESTIONS[at], SECTIONS[at]
    assert commands_of(section) == [shlex.split(each) for each in question.commands], STALE
    assert question.reading in section, STALE
    blocks = blocks_of(section)
    assert len(blocks) == len(question.commands)
    for block, command in zip(blocks, question.commands, strict=True):
        assert len(block) > len(shlex.split(command)) > 0


@pytest.mark.parametrize("at", range(10))
def test_every_command_of_the_page_still_answers_in_lines_of_80_columns(at):
    section = QUESTIONS[at].text(
        at + 1
    )  # which fails where a command ends with another code than 0
    assert commands_of(section) == commands_of(SECTIONS[at])
    for text in (section, SECTIONS[at]):
        assert max(len(line) for block in blocks_of(text) for line in block.splitlines()) <= COLUMNS


def test_a_question_whose_command_fails_is_not_shown():
    broken = replace(QUESTIONS[0], commands=("advisor predict no-such-job",))
    with pytest.raises(CalledProcessError) as failed:
        broken.text(1)
    assert failed.value.returncode == 2


def test_what_was_never_measured_says_so_on_the_page():
    for section in SECTIONS:
        for block in blocks_of(section):
            if "a100" in block and "--from-numbers" not in block:
                assert "estimated" in block.lower()


def test_readme_leads_to_the_page():
    assert "(docs/questions.md)" in (FILE.parents[1] / "README.md").read_text()
