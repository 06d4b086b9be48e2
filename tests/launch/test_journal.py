"""The journal: what is on the disk when, and what is read back after a crash anywhere."""

import errno
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance
from advisor.launch.journal import journal, taken_over
from advisor.launch.machine_changes import ChangedMig
from advisor.measure.process.journal_files import journal_files

HALF = GpuInstance(0, 4, 9, (ComputeInstance(0, 1, 0), ComputeInstance(1, 2)))
FIRST = ChangedMig(before=(), ours=(HALF,))
SECOND = ChangedMig(before=(HALF,), ours=(GpuInstance(0, 8, 0),))


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def crashed(*changes):
    """The file of a journal whose owner died after it had intended `changes`."""
    code = (
        "import os, sys; from advisor.launch.journal import journal\n"
        "from advisor.launch.machine_changes import ChangedMig\n"
        "from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance\n"
        "with journal('GPU-1', 'advisor run') as log:\n"
        f"    for each in {list(changes)!r}: log.intend(each)\n"
        "    os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    return journal_files()[-1]


def left_in(path):
    with taken_over(path) as found:
        return list(found.left.values()), found.damaged


def test_nothing_is_left_of_a_run_that_undid_all():
    with journal("GPU-1", "advisor run") as log:
        entries = [log.intend(FIRST), log.intend(SECOND)]
        assert journal_files() == [log.path]
        for entry in entries:
            log.undone(entry)
    assert journal_files() == []


def test_what_is_intended_is_on_the_disk_before_it_is_done(monkeypatch):
    synced = []
    real = os.fsync
    with journal("GPU-1", "advisor run") as log:
        monkeypatch.setattr(
            os, "fsync", lambda n: (synced.append(log.path.read_text().count("\n")), real(n))
        )
        log.undone(log.intend(FIRST))
    assert synced == [2, 3]


def test_a_killed_run_leaves_what_it_intended():
    assert left_in(crashed(FIRST, SECOND)) == ([FIRST, SECOND], [])


def test_what_a_live_run_does_is_not_taken_over():
    with journal("GPU-1", "advisor run") as log:
        log.undone(log.intend(FIRST))
        with taken_over(log.path) as found:
            assert found is None
        with pytest.raises(GpuUnavailable, match="another run"), journal("GPU-1", "advisor run"):
            pass
        with journal("GPU-2", "advisor run") as other:
            assert other.owner.gpu == "GPU-2"
    with taken_over(log.path) as found:
        assert found is None


def test_the_next_run_on_the_gpu_still_knows_what_a_dead_one_left():
    crashed(FIRST)
    with journal("GPU-1", "advisor run") as log:
        assert log.left == {1: FIRST}
        log.undone(log.intend(SECOND))
    assert left_in(log.path) == ([FIRST], [])


def test_nothing_is_left_after_the_machine_was_started_again():
    path = crashed(FIRST)
    text = path.read_text().replace('"boot":"', '"boot":"other')
    path.write_text(text)
    assert left_in(path) == ([], [])
    assert not path.exists()
    path.write_text(text)
    with journal("GPU-1", "advisor run") as log:
        assert log.left == {}
        assert log.owner.pid == os.getpid()
        log.intend(SECOND)
    assert left_in(path) == ([SECOND], [])


@pytest.mark.parametrize("said", ["", '{"schema":1,"gp'])
def test_a_run_that_died_before_it_said_who_it_was_had_begun_nothing(said):
    path = crashed(FIRST)
    path.write_text(said)
    with taken_over(path) as found:
        assert found is None
    assert not path.exists()
    path.write_text(said)
    with journal("GPU-1", "advisor run") as log:
        assert log.left == {}
    assert journal_files() == []


def test_who_takes_over_goes_on_with_new_entries():
    path = crashed(FIRST)
    with taken_over(path) as log:
        second = log.intend(SECOND)
        assert list(log.left) == [1, second]
        log.undone(1)
    assert left_in(path) == ([SECOND], [])


@given(cut=st.integers(min_value=1, max_value=400))
def test_a_torn_last_line_tells_of_nothing_that_was_done(cut, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        with journal("GPU-1", "advisor run") as log:
            log.intend(FIRST)
            whole = log.path.stat().st_size
            log.intend(SECOND)
        size = log.path.stat().st_size
        kept = max(whole, size - cut)
        os.truncate(log.path, kept)
        assert left_in(log.path) == ([FIRST] if kept < size else [FIRST, SECOND], [])
        with taken_over(log.path) as again:
            again.intend(SECOND)
        assert left_in(log.path)[0][-1] == SECOND


def test_a_line_that_cannot_be_read_hides_no_other_and_the_file_stays():
    path = crashed(FIRST, SECOND)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"\xff nonsense\n", *lines[2:]]))
    left, (damage,) = left_in(path)
    assert left == [SECOND]
    assert "line 2" in damage
    with taken_over(path) as log:
        log.undone(2)
    assert path.exists()


@given(line=st.binary(max_size=60))
def test_no_line_whatever_is_in_it_ends_reading(line, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        with journal("GPU-1", "advisor run") as log:
            log.intend(FIRST)
        with log.path.open("ab") as file:
            file.write(line + b"\n")
        left_in(log.path)


def test_a_file_that_does_not_say_whose_it_is_is_refused():
    path = crashed(FIRST)
    path.write_text("nonsense\n")
    with pytest.raises(InvalidInput, match="line 1"), taken_over(path):
        pass
    with pytest.raises(InvalidInput, match="line 1"), journal("GPU-1", "advisor run"):
        pass


def full(monkeypatch, *, after_bytes):
    """The disk takes so many bytes of a line, then no more."""
    real = os.write
    room = [after_bytes]

    def write(descriptor, line):
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(descriptor, line[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("room", [0, 40])
def test_where_the_disk_is_full_nothing_is_begun_and_nothing_is_spoilt(monkeypatch, room):
    with journal("GPU-1", "advisor run") as log:
        log.intend(FIRST)
        with monkeypatch.context() as patch:
            full(patch, after_bytes=room)
            with pytest.raises(AdvisorError, match="No space left"):
                log.intend(SECOND)
        log.intend(SECOND)
    assert left_in(log.path) == ([FIRST, SECOND], [])


def test_a_full_disk_does_not_stop_what_is_being_undone(monkeypatch):
    with journal("GPU-1", "advisor run") as log:
        entry = log.intend(FIRST)
        with monkeypatch.context() as patch:
            full(patch, after_bytes=3)
            log.undone(entry)
    assert journal_files() == []


def test_a_data_folder_that_cannot_be_written_is_said_before_anything_begins(data, monkeypatch):
    (data / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(data / "file"))
    with pytest.raises(AdvisorError, match="set XDG_DATA_HOME"), journal("GPU-1", "advisor run"):
        pass


def test_only_its_owner_may_read_a_journal():
    with journal("GPU-1", "advisor run") as log:
        log.intend(FIRST)
    assert log.path.stat().st_mode & 0o077 == 0
    assert log.path.parent.stat().st_mode & 0o077 == 0
