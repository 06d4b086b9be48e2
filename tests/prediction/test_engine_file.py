"""What was compiled once is loaded later, and compiled again where it cannot be."""

from hashlib import sha256

import llvmlite.binding as llvm
import pytest

from advisor.prediction import engine_file
from advisor.prediction.engine_layout import LOOPS


@pytest.fixture(scope="module")
def code():
    """Machine code for this processor."""
    engine_file.loops()  # compiles it where that is still to do, and keeps it
    return next(filter(None, map(engine_file._read, kept_in(*engine_file._folders()))))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which files are looked for."""
    monkeypatch.setattr(engine_file, "_folders", lambda: iter([tmp_path]))
    return tmp_path


@pytest.fixture
def compilations(monkeypatch, code):
    """A list that grows each time that something is compiled."""
    made = []
    monkeypatch.setattr(engine_file, "_compiled", lambda: made.append(1) or code)
    return made


def kept_in(*folders):
    return [path for folder in folders for path in folder.glob("engine-*.o")]


def test_what_was_compiled_once_is_loaded_by_the_next_process(place, compilations):
    for _ in range(2):
        assert engine_file._found().keys() == LOOPS.keys()
    assert len(compilations) == len(kept_in(place)) == 1


def damaged(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:1000])


def no_object_file(path):
    path.write_bytes(sha256(b"text").digest() + b"text")


def writable_by_others(path):
    path.chmod(0o666)


@pytest.mark.parametrize("spoil", [damaged, cut_short, no_object_file, writable_by_others])
def test_a_file_that_is_damaged_or_that_others_could_write_is_made_anew(place, compilations, spoil):
    engine_file._found()
    spoil(*kept_in(place))
    for _ in range(2):
        assert engine_file._found().keys() == LOOPS.keys()
    assert len(compilations) == 2


def test_each_kind_of_processor_has_a_file_of_its_own(place, compilations, monkeypatch):
    engine_file._found()
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "another")
    engine_file._found()
    assert len(compilations) == len(kept_in(place)) == 2


def test_where_no_folder_can_be_written_each_process_compiles(tmp_path, compilations, monkeypatch):
    (file := tmp_path / "file").touch()
    monkeypatch.setattr(engine_file, "_folders", lambda: iter([file / "no-folder"]))
    for _ in range(2):
        assert engine_file._found().keys() == LOOPS.keys()
    assert len(compilations) == 2


def test_where_the_installation_cannot_be_written_the_user_has_a_file(
    tmp_path, compilations, monkeypatch
):
    (file := tmp_path / "file").touch()
    own = tmp_path / "own"
    monkeypatch.setattr(engine_file, "_folders", lambda: iter([file / "no-folder", own]))
    for _ in range(2):
        engine_file._found()
    assert len(compilations) == len(kept_in(own)) == 1
