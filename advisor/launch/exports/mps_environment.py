"""MPS daemons and the environment of their clients, for jobs that something else starts."""

from collections.abc import Iterator, Sequence

from advisor.errors import InvalidInput
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Room

_HEAD = """\
#!/usr/bin/env bash
# MPS for {sharing} on GPU 0, one {gpu}.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
"""


def mps_text(plan: LaunchPlan) -> str:
    """A script that starts and stops the plan's daemons, and runs a command as one of its jobs.

    Raises:
        InvalidInput: No job of `plan` shares by MPS.
    """
    rooms = [room for room in plan.rooms if room.under_mps]
    if not rooms:
        raise InvalidInput(
            f"{plan.sharing}: no job of it shares by MPS. Export it as commands instead."
        )
    head = _HEAD.format(sharing=plan.sharing, gpu=plan.gpu.key)
    return head + "\n".join([*_places(rooms), *_verbs(rooms), ""])


def _places(rooms: Sequence[Room]) -> Iterator[str]:
    if any(room.instance for room in rooms):
        yield f"# {NOT_RUN}"
    yield "set -eu"
    for room in rooms:
        if room.instance:
            yield f': "${{MIG_{room.number}:?set it to the UUID of {room}: nvidia-smi -L}}"'
    # A short path, since pipes are Unix sockets.
    yield "folder=${XDG_RUNTIME_DIR:-/tmp/advisor-$UID}/advisor-mps"
    for room in rooms:
        yield f"{shell.folder(room)}=$folder/{room.number}"


def _verbs(rooms: Sequence[Room]) -> Iterator[str]:
    yield from shell.MPS_WORDS
    yield "stop() {"
    yield from (f"  {shell.daemon_stopped(room)}" for room in rooms)
    yield "}"
    yield 'usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }'
    yield "case ${1:-} in"
    yield "start)"
    yield from (f"  {line}" for line in _start(rooms))
    yield "  ;;"
    yield "stop)"
    yield "  stop"
    yield "  ;;"
    yield "run)"
    yield "  [ $# -gt 2 ] || usage"
    yield "  job=$2"
    yield "  shift 2"
    yield from _jobs(rooms)
    yield "  ;;"
    yield "*) usage ;;"
    yield "esac"


def _start(rooms: Sequence[Room]) -> Iterator[str]:
    """All daemons are started or none; those that run, with jobs on them maybe, are let be."""
    for room in rooms:
        said = f'echo "MPS runs already, in ${shell.folder(room)}: bash $0 stop" >&2'
        yield f"! {shell.daemon_answers(room)} || {{ {said}; exit 1; }}"
    for room in rooms:
        yield f'mkdir -p "${shell.folder(room)}"'
        yield f"{shell.device(room)} {shell.daemon_started(room)} || {{ stop; exit 1; }}"


def _jobs(rooms: Sequence[Room]) -> Iterator[str]:
    yield "  case $job in"
    for room in rooms:
        off = '{ echo "MPS is off: bash $0 start" >&2; exit 1; }'
        for start in room.starts:
            settings = [shell.device_of_job(room), *shell.client(room, start), *shell.pinned(start)]
            yield f"  {start.number})  # {start.job.name}"
            yield f"    {shell.daemon_answers(room)} || {off}"
            yield f'    exec env {" ".join(settings)} "$@" ;;'
    yield '  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;'
    yield "  esac"
