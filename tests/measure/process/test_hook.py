"""The hook in a user's script: what a step is, old Pythons, and the folder of the script."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.measure.inside.files import replace_link
from advisor.measure.inside.program import Program
from advisor.measure.script import mirror_folder
from advisor.measure.tenant import hook_variables


class Counting(Program):
    """A program whose steps are only counted."""

    def __init__(self):
        super().__init__("")
        self.ended = []

    def _step_ended(self):
        self.ended.append(1)


rounds = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(rounds)
def test_once_a_round_of_all_optimizers_is_known_each_round_is_one_step(order):
    hook, optimizers = Counting(), [object() for _ in range(5)]
    for _ in range(4):
        for each in order:
            hook.optimizer_stepped(optimizers[each])
    hook.ended.clear()
    for done in range(1, 6):
        for each in order:
            hook.optimizer_stepped(optimizers[each])
        least = min(order.count(each) for each in set(order))
        assert len(hook.ended) == done * least


def test_a_script_that_says_its_steps_itself_is_believed():
    hook, optimizer = Counting(), object()
    hook.stepped_explicitly()
    for _ in range(10):
        hook.optimizer_stepped(optimizer)
    assert len(hook.ended) == 1
    hook.stepped_explicitly()
    assert len(hook.ended) == 2


# What came with Python 3.11, taken away before the hook is imported as in a script.
WITHOUT = """\
import datetime, enum, sys
sys.path.insert(0, sys.argv[1])
sys.modules["tomllib"] = sys.modules["numpy"] = None
del enum.StrEnum, datetime.UTC
from advisor_inside import hook, server
print(*(each.__file__ for name, each in sys.modules.items() if name.startswith("advisor")))
"""
NEW_IN_TYPING = {"LiteralString", "Never", "NotRequired", "Self", "Unpack", "assert_never"}


def typing_names(file):
    """What a module takes from `typing`."""
    for node in ast.walk(ast.parse(file.read_text(), feature_version=(3, 10))):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            yield from (each.name for each in node.names)


def test_the_hook_in_a_script_needs_nothing_that_came_after_python_3_10(tmp_path):
    hook_variables(tmp_path / "hook", {}, None)
    words = [sys.executable, "-I", "-c", WITHOUT, str(tmp_path / "hook")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = [Path(each) for each in done.stdout.split()]
    assert len(modules) > 6
    for module in modules:
        assert module.parent.name == "advisor_inside", "nothing else of advisor is imported"
        assert NEW_IN_TYPING.isdisjoint(typing_names(module)), module


BIG = b"0" * (2**20 + 1)


@pytest.fixture
def original(tmp_path):
    folder = tmp_path / "near" / "home"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("pass")
    (folder / "data" / "deep" / "small").write_text("small")
    (folder / "data" / "big").write_bytes(BIG)
    (folder / "latest").symlink_to("data")
    (tmp_path / "near" / "shared.txt").write_text("shared")
    return folder


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
        if path.is_file()
    }  # fmt: skip


def test_a_script_finds_what_is_in_its_folder_and_around_it(original, tmp_path):
    mirror = mirror_folder(original, tmp_path / "scratch")
    assert mirror.name == "home"
    assert contents(mirror) == contents(original)
    assert (mirror / "latest" / "big").read_bytes() == BIG
    assert (mirror / ".." / "shared.txt").read_text() == "shared"


def test_what_a_script_writes_stays_out_of_its_folder(original, tmp_path):
    before = contents(original)
    mirror = mirror_folder(original, tmp_path / "scratch")
    (mirror / "train.py").write_text("changed")
    (mirror / "data" / "new").write_text("new")
    (mirror / "data" / "deep" / "small").unlink()
    replace_link(mirror / "data" / "big", mirror, keep=False)
    (mirror / "data" / "big").write_bytes(b"changed")
    assert contents(original) == before


def test_a_large_file_is_copied_when_it_is_added_to(original, tmp_path):
    mirror = mirror_folder(original, tmp_path / "scratch")
    place = mirror / "data" / "big"
    assert place.is_symlink()
    replace_link(os.fspath(place), mirror, keep=True)
    with place.open("ab") as file:
        file.write(b"1")
    assert place.read_bytes() == BIG + b"1"
    assert (original / "data" / "big").read_bytes() == BIG


def test_what_is_no_readable_file_is_there_too(original, tmp_path):
    (original / "circle").symlink_to("circle")
    (original / "nowhere").symlink_to("gone")
    os.mkfifo(original / "pipe")
    mirror = mirror_folder(original, tmp_path / "scratch")
    assert {"circle", "nowhere", "pipe", "train.py"} <= {each.name for each in mirror.iterdir()}
