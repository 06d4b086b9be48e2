"""Files that users name: read if they are files of a likely size, written through their links."""

import os
import socket
import stat
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.files.reading import MOST_BYTES, MOST_TOML_BYTES, read_bytes, read_toml
from advisor.files.writing import append_line, writable, writable_folder, write_whole


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


# What makes something at a path that is not a regular file, and how it is called.
NOT_FILES = [
    (os.mkfifo, "a FIFO"),
    (unix_socket, "a socket"),
    (os.mkdir, "a folder"),
    (lambda path: path.symlink_to("/dev/zero"), "a device"),
    (lambda path: path.symlink_to("/dev/full"), "a device"),
]


@pytest.mark.parametrize(("make", "kind"), NOT_FILES)
def test_what_is_not_a_regular_file_is_neither_read_nor_replaced(make, kind, tmp_path):
    path = tmp_path / "it"
    make(path)
    before = path.lstat()
    with pytest.raises(InvalidInput, match=kind):
        read_bytes(path)
    for write in (write_whole, append_line):
        with pytest.raises(InvalidInput, match=kind):
            write(path, "text")
    after = path.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert [each.name for each in tmp_path.iterdir()] == ["it"]


def test_a_file_larger_than_any_of_ours_is_not_read(tmp_path):
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # all holes: no disk is filled
    with pytest.raises(InvalidInput, match="more than 128 MiB"):
        read_bytes(tmp_path / "big.json")
    (tmp_path / "big.toml").write_bytes(b" " * (MOST_TOML_BYTES + 1))
    with pytest.raises(InvalidInput, match="more than 1 MiB"):
        read_toml(tmp_path / "big.toml")


def test_the_commands_own_output_is_no_file_to_write_whether_a_pipe_or_a_file(tmp_path):
    # With `--out /dev/stdout >> all.sh`, all that is in all.sh would be lost.
    file = tmp_path / "all.sh"
    file.write_text("before\n")
    inward, outward = os.pipe()
    kept = os.dup(1)
    try:
        os.dup2(outward, 1)
        with pytest.raises(InvalidInput, match="/dev/stdout: it is a FIFO"):
            write_whole(Path("/dev/stdout"), "text")
        with file.open("a") as appended:
            os.dup2(appended.fileno(), 1)
        for path in ("/dev/stdout", "/proc/self/fd/1", file):
            with pytest.raises(InvalidInput, match="already writes its output there"):
                write_whole(Path(path), "text")
    finally:
        os.dup2(kept, 1)
        for each in (kept, inward, outward):
            os.close(each)
    assert file.read_text() == "before\n"


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_points_to_is_written(there, tmp_path):
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    if there:
        target.parent.mkdir()
        target.write_text("before")
    (tmp_path / "second").symlink_to(target)
    link.symlink_to("second")
    write_whole(link, "one\n")
    append_line(link, "two\n")
    assert target.read_text() == "one\ntwo\n"
    assert link.is_symlink()
    assert not target.is_symlink()


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    script = tmp_path / "plan.sh"
    script.write_text("before")
    script.chmod(0o755)
    write_whole(script, "after")
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("after", 0o755)


def test_asking_whether_a_path_can_be_written_makes_nothing(tmp_path):
    assert writable(tmp_path / "new" / "deep" / "model.json").name == "model.json"
    assert writable_folder(tmp_path / "other").name == "other"
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_and_a_folder_that_is_a_file_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "model.json", tmp_path / "file" / "far" / "model.json"):
        with pytest.raises(InvalidInput, match="its parent is not a folder"):
            writable(path)
    with pytest.raises(InvalidInput, match="its parent is not a folder"):
        writable_folder(tmp_path / "file")


def test_a_full_disk_leaves_whole_lines_and_whole_files(tmp_path):
    lines, whole = tmp_path / "runs.jsonl", tmp_path / "profile.json"
    append_line(lines, "one\n")
    write_whole(whole, "before")
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (10, hard))  # fails as a full disk does
    try:
        for write, path in ((append_line, lines), (write_whole, whole)):
            with pytest.raises(AdvisorError, match=r"No space left on device|File too large"):
                write(path, "more than there is room for\n")
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    append_line(lines, "two\n")
    assert (lines.read_text(), whole.read_text()) == ("one\ntwo\n", "before")
    assert len(list(tmp_path.iterdir())) == 2
