"""What this user's killed runs and measurements left on this machine; nothing of it is changed."""

from collections.abc import Iterator, Sequence

from advisor.english import counted
from advisor.measure.doctor.findings import Finding, Said
from advisor.measure.process.process_ends import mps_within
from advisor.measure.process.run_locks import left_locks
from advisor.measure.process.scratch_folders import left_folders
from advisor.measure.process.script_processes import scripts_within
from advisor.measure.process.state_files import left_in, left_states, processes_of

_CLEARS = "advisor doctor --undo"


def leftover_findings() -> Iterator[Finding]:
    """Each state file, folder and lock whose owner is dead, with the command that clears it."""
    for said in (*_scripts(), *_folders(), *_locks()):
        yield Finding(said[0], "host", *said[1:])


def _scripts() -> Iterator[Said]:
    for path in left_states():
        left = left_in(path)
        marks = [line.partition(" ")[2] for line in left if line.startswith("jobs ")]
        pids = [pid for mark in marks for pid in processes_of(f"ADVISOR_MARK={mark}-")]
        changes = [line for line in left if not line.startswith(("jobs ", "folder "))]
        yield (
            "spoils" if pids or changes else "note",
            f"a script that ran a plan was killed: {path}{_living(pids)}",
            f"not undone: {', '.join(changes)}" if changes else "none of its further jobs starts",
            f"{_CLEARS} ends its jobs and undoes what it changed",
        )


def _folders() -> Iterator[Said]:
    for folder in left_folders():
        pids = (*scripts_within(folder), *mps_within(folder))
        yield (
            "spoils" if pids else "note",
            f"a killed measurement left {folder}{_living(pids)}",
            "its scripts and MPS daemons hold the GPU" if pids else "it takes room", _CLEARS,
        )  # fmt: skip


def _locks() -> Iterator[Said]:
    for path in left_locks():
        yield (
            "note", f"a killed run left the lock {path}",
            "it stops nobody: the next run takes it over", _CLEARS,
        )  # fmt: skip


def _living(pids: Sequence[int]) -> str:
    if not pids:
        return ""
    count, verb = counted(len(pids), "process"), "lives" if len(pids) == 1 else "live"
    return f"; {count} of it {verb}: {', '.join(map(str, pids))}"
