"""What this user's killed runs and measurements left on this machine; nothing of it is changed."""

from collections.abc import Iterator, Sequence

from advisor.english import counted
from advisor.measure.doctor.findings import Finding, Said
from advisor.measure.execution.leftovers import abandoned
from advisor.measure.execution.run_processes import marked
from advisor.measure.process.journal_files import left_journals
from advisor.measure.process.process_ends import mps_within
from advisor.measure.process.run_locks import left_locks
from advisor.measure.process.scratch_folders import left_folders
from advisor.measure.process.script_processes import scripts_within

_CLEARS = "advisor restore"


def leftover_findings() -> Iterator[Finding]:
    """Each run, folder, lock and journal whose owner is dead, with the command that clears it."""
    for said in (*_runs(), *_folders(), *_locks(), *_journals()):
        yield Finding(said[0], "host", *said[1:])


def _runs() -> Iterator[Said]:
    for folder in abandoned():
        name = folder.path.name
        pids = marked(name)
        yield (
            "spoils" if pids else "note",
            f"nobody watches run {name}, which is not over{_living(pids)}",
            "what it left holds the GPU, and none of its further jobs starts",
            f"{_CLEARS} ends it; advisor run --resume {name} watches it again",
        )  # fmt: skip


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


def _journals() -> Iterator[Said]:
    for path in left_journals():
        yield (
            "spoils", f"a killed run changed the MIG instances of {path.stem} ({path})",
            "the instances of before are not back", _CLEARS,
        )  # fmt: skip


def _living(pids: Sequence[int]) -> str:
    if not pids:
        return ""
    count, verb = counted(len(pids), "process"), "lives" if len(pids) == 1 else "live"
    return f"; {count} of it {verb}: {', '.join(map(str, pids))}"
