from advisor.launch.journal import journal
from advisor.launch.machine_changes import ChangedMig
from tests.hardware.conftest import install
from tests.hardware.mig_machine import MigMachine

__all__ = ["install"]


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
