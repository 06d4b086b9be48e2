"""Files that users name: read if they are files of a likely size, written through their links."""

import os
import socket
import stat
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.documents import MOST_TOML_BYTES, read_toml
from advisor.workload.files import MOST_BYTES, read_bytes
from advisor.workload.writing import append_line, writable, writable_folder, write_whole


def fifo(path):
    os.mkfifo(path)
    return path


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def folder(path):
    path.mkdir()
    return path


NO_FILES = [(fifo, "a FIFO"), (unix_socket, "a socket"), (folder, "a folder")]
DEVICES = ["/dev/zero", "/dev/full", "/dev/null"]


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_not_read(device, tmp_path):
    (tmp_path / "link.json").symlink_to(device)
    for path in (tmp_path / "link.json", Path(device)):
        with pytest.raises(InvalidInput, match=r"a device\. Name a regular file"):
            read_bytes(path)


@pytest.mark.parametrize(("make", "what"), NO_FILES)
def test_what_is_no_file_is_not_waited_for(make, what, tmp_path):
    with pytest.raises(InvalidInput, match=what):
        read_bytes(make(tmp_path / "it"))


def test_a_file_larger_than_any_of_ours_is_not_read(tmp_path):
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # all holes: no disk is filled
    with pytest.raises(InvalidInput, match="more than 128 MiB"):
        read_bytes(tmp_path / "big.json")
    (tmp_path / "big.toml").write_bytes(b" " * (MOST_TOML_BYTES + 1))
    with pytest.raises(InvalidInput, match="more than 1 MiB"):
        read_toml(tmp_path / "big.toml")


def test_a_file_that_says_it_is_empty_and_goes_on_is_not_read_to_its_end():
    # Files of /proc have size 0.
    path = Path("/proc/self/status")
    with pytest.raises(InvalidInput, match="more than 0 MiB"):
        read_bytes(path, most=10)


@pytest.mark.parametrize("write", [write_whole, append_line])
@pytest.mark.parametrize(("make", "what"), NO_FILES)
def test_what_is_no_file_is_neither_replaced_nor_waited_for(write, make, what, tmp_path):
    path = make(tmp_path / "it")
    before = path.stat()
    with pytest.raises(InvalidInput, match=f"{what}, and only a regular file is replaced"):
        write(path, "text")
    after = path.stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert [each.name for each in tmp_path.iterdir()] == ["it"]


@pytest.mark.parametrize("write", [write_whole, append_line])
@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_refused_and_stays_even_behind_a_link(write, device, tmp_path):
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(InvalidInput, match="a device, and only a regular file is replaced"):
        write(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert Path(device).is_char_device()


def test_the_commands_own_output_is_no_file_to_write_whether_a_pipe_or_a_file(tmp_path):
    """Under ``--out /dev/stdout >> all.sh`` all that is in all.sh would be lost."""
    file = tmp_path / "all.sh"
    file.write_text("before\n")
    inward, outward = os.pipe()
    kept = os.dup(1)
    try:
        os.dup2(outward, 1)
        # It is a link to a pipe here, and to a device in a terminal: `export` without --out
        # writes there, and nothing else has a file to replace.
        with pytest.raises(InvalidInput, match="/dev/stdout: it is a FIFO"):
            write_whole(Path("/dev/stdout"), "text")
        with file.open("a") as appended:
            os.dup2(appended.fileno(), 1)
        for path in ("/dev/stdout", "/proc/self/fd/1", file):
            with pytest.raises(InvalidInput, match="own output goes there already"):
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


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(AdvisorError, match="Too many levels of symbolic links"):
        write_whole(tmp_path / "a", "text")


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    script = tmp_path / "plan.sh"
    script.write_text("before")
    script.chmod(0o755)
    write_whole(script, "after")
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("after", 0o755)


def test_what_is_written_is_utf_8_whatever_the_locale(tmp_path, monkeypatch):
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "ascii")
    write_whole(tmp_path / "it", "größer")
    assert (tmp_path / "it").read_bytes() == "größer".encode()


def test_asking_whether_a_path_can_be_written_makes_nothing(tmp_path):
    assert writable(tmp_path / "new" / "deep" / "model.json").name == "model.json"
    assert writable_folder(tmp_path / "other").name == "other"
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_and_a_folder_that_is_a_file_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "model.json", tmp_path / "file" / "far" / "model.json"):
        with pytest.raises(InvalidInput, match="part of it is not a folder"):
            writable(path)
    with pytest.raises(InvalidInput, match="part of it is not a folder"):
        writable_folder(tmp_path / "file")


@pytest.mark.parametrize("path", ["/proc/nowhere/model.json", "a\0b"])
def test_a_place_where_no_file_can_be_made_fails_before_anything_is_done(path, tmp_path):
    with pytest.raises(AdvisorError, match="Choose another path"):
        writable(tmp_path / path)
    with pytest.raises((AdvisorError, InvalidInput)):
        read_bytes(tmp_path / path)


def test_a_line_for_which_there_is_no_room_leaves_nothing_of_itself(tmp_path):
    file = tmp_path / "runs.jsonl"
    append_line(file, "one\n")
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(AdvisorError, match="No space left on device"):
            append_line(file, "two, and more than there is room for\n")
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))
    append_line(file, "three\n")
    assert file.read_text() == "one\nthree\n"
