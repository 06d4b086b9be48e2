"""The folder in which a script runs: it reads what is in its own, and changes nothing there."""

import os

import pytest

from advisor.measure.process.script_folder import made_beside, unlinked

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
    mirror = made_beside(original, tmp_path / "scratch")
    assert mirror.name == "home"
    assert contents(mirror) == contents(original)
    assert (mirror / "latest" / "big").read_bytes() == BIG
    assert (mirror / ".." / "shared.txt").read_text() == "shared"


def test_what_a_script_writes_stays_out_of_its_folder(original, tmp_path):
    before = contents(original)
    mirror = made_beside(original, tmp_path / "scratch")
    (mirror / "train.py").write_text("changed")
    (mirror / "data" / "new").write_text("new")
    (mirror / "data" / "deep" / "small").unlink()
    unlinked(mirror / "data" / "big", mirror, keep=False)
    (mirror / "data" / "big").write_bytes(b"changed")
    assert contents(original) == before


def test_a_large_file_is_copied_when_it_is_added_to(original, tmp_path):
    mirror = made_beside(original, tmp_path / "scratch")
    place = mirror / "data" / "big"
    assert place.is_symlink()
    unlinked(os.fspath(place), mirror, keep=True)
    with place.open("ab") as file:
        file.write(b"1")
    assert place.read_bytes() == BIG + b"1"
    assert (original / "data" / "big").read_bytes() == BIG


@pytest.mark.parametrize("path", [3, None, b"bytes", "elsewhere"])
def test_what_is_no_link_in_there_is_left_alone(original, tmp_path, path):
    unlinked(path, made_beside(original, tmp_path / "scratch"), keep=False)


def test_a_folder_of_too_many_files_is_linked_whole(original, tmp_path):
    (original / "images").mkdir()
    for number in range(1001):
        (original / "images" / str(number)).touch()
    mirror = made_beside(original, tmp_path / "scratch")
    assert (mirror / "images").is_symlink()
    assert len(list((mirror / "images").iterdir())) == 1001


@pytest.mark.parametrize("inside", [".", "data/deep"])
def test_a_scratch_folder_inside_the_folder_is_no_part_of_the_mirror(original, inside):
    mirror = made_beside(original, original / inside / "scratch")
    assert (mirror / "train.py").read_text() == "pass"
    assert not list(mirror.rglob("around"))


def test_an_empty_folder_is_the_scripts_own_to_write_to(original, tmp_path):
    (original / "checkpoints").mkdir()
    mirror = made_beside(original, tmp_path / "scratch")
    (mirror / "checkpoints" / "model.pt").touch()
    assert not any((original / "checkpoints").iterdir())


def test_a_script_among_thousands_of_files_is_found(original, tmp_path):
    for number in range(1001):
        (original / f"{number}.jpg").touch()
    mirror = made_beside(original, tmp_path / "scratch")
    assert contents(mirror) == contents(original)


def test_a_script_reads_what_lies_further_above(original, tmp_path):
    (tmp_path / "far.txt").write_text("far")
    mirror = made_beside(original, tmp_path / "scratch")
    assert (mirror / ".." / ".." / "far.txt").read_text() == "far"
    assert not (mirror / ".." / ".." / "scratch").exists()


def test_what_is_no_readable_file_is_there_too(original, tmp_path):
    (original / "circle").symlink_to("circle")
    (original / "nowhere").symlink_to("gone")
    os.mkfifo(original / "pipe")
    mirror = made_beside(original, tmp_path / "scratch")
    assert {"circle", "nowhere", "pipe", "train.py"} <= {each.name for each in mirror.iterdir()}


def test_what_others_may_not_read_is_linked(original, tmp_path, monkeypatch):
    def denied(path):
        if path == original / "data":
            raise PermissionError
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", denied)
    monkeypatch.setattr(os, "access", lambda path, _mode: not path.endswith("train.py"))
    mirror = made_beside(original, tmp_path / "scratch")
    assert (mirror / "data").is_symlink()
    assert (mirror / "train.py").is_symlink()
