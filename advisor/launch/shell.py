"""Words of shell lines that start jobs: their environment, their cores, MPS daemons.

Environment variables as in NVIDIA's MPS documentation, Environment Variables, and its MIG User
Guide, MIG with CUDA MPS: one daemon for each MIG device, with a folder of its own. Where no daemon
answers, CUDA runs without MPS and says nothing: so each is asked before a job starts.
"""

import shlex
from collections.abc import Iterator, Sequence

from advisor.launch.launch_plan import Room, Start

_CONTROL = "nvidia-cuda-mps-control"

MPS_WORDS = (
    "unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    f"mps_answers() {{ echo get_server_list | {_CONTROL} > /dev/null 2>&1; }}",
    "mps_start() {  # fails where the daemon does not answer: CUDA would run without MPS",
    f"  {_CONTROL} -d && for try in $(seq 50); do",
    "    mps_answers && return",
    "    sleep 0.1",
    "  done",
    '  echo "MPS does not start. Its log: $CUDA_MPS_LOG_DIRECTORY" >&2',
    "  return 1",
    "}",
    f"mps_stop() {{ ! mps_answers || echo quit | {_CONTROL}; }}",
)
"""Lines that define what `daemon_started`, `daemon_answers` and `daemon_stopped` call, and keep
limits that the caller's environment sets from jobs that are to have none."""


def guard(rooms: Sequence[Room], undo: Sequence[str] = ()) -> Iterator[str]:
    """Lines before those that start anything: they end all of it, also when interrupted.

    They make a shell theirs: its traps, and the variables ``jobs`` and ``failed``.

    Args:
        rooms: Whose daemons and jobs are started.
        undo: Lines that take back what else was set.
    """
    served = [room for room in rooms if room.under_mps]
    yield " ".join(["jobs= failed=0", *(f"{folder(room)}=" for room in served)])
    # A session each, so that a job's own processes end with it.
    yield 'job() { setsid "$@" & jobs="$jobs $!"; }'
    yield 'ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }'
    yield "stop() {  # also when interrupted"
    yield "  for each in $jobs; do"
    yield '    kill -s TERM -- "-$each" || kill -s TERM "$each"'
    yield "  done 2> /dev/null"
    yield "  wait"
    for room in served:
        yield f"  [ -z {_value(room)} ] || {daemon_stopped(room)}"
    yield from (f"  {line}" for line in undo)
    yield "}"
    if served:
        yield from MPS_WORDS
    yield "trap stop EXIT"
    yield "trap 'exit 130' INT"
    yield "trap 'exit 143' HUP TERM"


STATUS = 'exit "$failed"'
"""The last line after those of `guard`: says whether a job failed."""


def device(room: Room) -> str:
    """The setting that lets a process, or an MPS daemon, see this room alone.

    UUIDs of MIG devices are known only once these exist, so a variable stands for each.
    """
    name = str(room.device) if room.instance is None else f'"$MIG_{room.number}"'
    return f"CUDA_VISIBLE_DEVICES={name}"


def device_of_job(room: Room) -> str:
    """As `device`, for a job: to clients of an MPS daemon that sees one GPU, that is device 0."""
    return "CUDA_VISIBLE_DEVICES=0" if renumbered(room) else device(room)


def renumbered(room: Room) -> bool:
    """Whether jobs see another number than whoever starts them: clients of a GPU's daemon do."""
    return room.under_mps and room.instance is None


def folder(room: Room) -> str:
    """The variable that holds the folder of the room's MPS daemon."""
    return f"MPS_{room.number}"


def daemon_started(room: Room) -> str:
    """Starts the room's MPS daemon where it is told before to, and fails if it does not answer."""
    return f"{_pipes(room)} CUDA_MPS_LOG_DIRECTORY={_value(room)} mps_start"


def daemon_answers(room: Room) -> str:
    return f"{_pipes(room)} mps_answers"


def daemon_stopped(room: Room) -> str:
    return f"{_pipes(room)} mps_stop"


def client(room: Room, start: Start) -> list[str]:
    """Settings of a job as an MPS client; none where its room has no MPS."""
    return [_pipes(room), *_limits(start)] if room.under_mps else []


def _limits(start: Start) -> list[str]:
    """Settings of what an MPS client may take; device 0 is the one that it sees."""
    said = []
    if start.limit is not None:
        said.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={start.limit:g}")
    if start.memory_cap_mib is not None:
        said.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={start.memory_cap_mib}M")
    return said


def pinned(start: Start) -> list[str]:
    """What keeps a job on its cores; nothing where nobody knows how many it uses."""
    if start.cores is None:
        return []
    first, last = start.cores
    return ["taskset", "-c", str(first) if first == last else f"{first}-{last}"]


def command(start: Start) -> str:
    """Stands for the user's own command."""
    return shlex.quote(f"./{start.job.name}.sh")


def _pipes(room: Room) -> str:
    return f"CUDA_MPS_PIPE_DIRECTORY={_value(room)}"


def _value(room: Room) -> str:
    return f'"${folder(room)}"'
