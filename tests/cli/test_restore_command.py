import pytest

from advisor.launch.journal import journal
from advisor.launch.machine_changes import ChangedMig
from advisor.measure.execution.run_folder import RunFolder, runs_folder
from advisor.measure.process import scratch_folders
from tests.hardware.conftest import install
from tests.hardware.mig_machine import MigMachine

__all__ = ["install"]


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, which others use meanwhile."""
    monkeypatch.setattr(scratch_folders, "temporary_base", lambda: tmp_path)
    return tmp_path


def left_behind():
    with journal("GPU-0", "advisor run") as log:
        log.intend(ChangedMig(before=(), ours=()))
    return log.path


def test_restore_says_what_it_undid_and_then_nothing(advisor, install):
    install(MigMachine())
    assert advisor("restore").out == "Nothing is left to undo.\n"
    left_behind()
    said = advisor("restore")
    assert said.code == 0
    assert "`advisor run`, process" in said.out
    assert "MIG of GPU 0: no instance, as before (this has not run on MIG hardware" in said.out
    assert advisor("restore").out == "Nothing is left to undo.\n"


def test_restore_that_cannot_undo_all_fails_and_says_why(advisor, install):
    install(MigMachine())
    with left_behind().open("a") as file:
        file.write("half a line, and a half\n")
    said = advisor("restore")
    assert said.code == 1
    assert "as before" in said.out
    assert "line 3" in said.err
    assert "nvidia-smi mig -lgi" in said.err
    assert "Traceback" not in said.err


def test_restore_removes_the_folder_of_a_killed_measurement(advisor, temporary):
    folder = temporary / "advisor-run-x"
    folder.mkdir()
    (folder / "owned").touch()
    assert f"{folder}: what a killed measurement left was ended, its" in advisor("restore").out
    assert not folder.exists()
    assert advisor("restore").out == "Nothing is left to undo.\n"


def test_restore_leaves_a_run_alone_that_is_watched(advisor, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = RunFolder(runs_folder() / "r1")
    folder.path.mkdir(parents=True)
    with folder.watched():
        assert advisor("restore").out == "run r1: another process watches it, and it goes on\n"
