"""Words of shell lines that start jobs: their environment, their cores, MPS daemons.

Environment variables as in NVIDIA's MPS documentation, Environment Variables, and its MIG User
Guide, MIG with CUDA MPS: one daemon for each MIG device, with a folder of its own. Where no daemon
answers, CUDA runs without MPS and says nothing: so each is asked before a job starts.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from advisor.hardware.mps import CONTROL, client_variables
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start
from advisor.workload.secret_names import is_secret

NOBODYS_MPS = 'unset "${!CUDA_MPS_@}"'
"""Keeps the daemon and the limits that the caller's environment names from all jobs."""

MPS_WORDS = (
    f"mps_answers() {{ echo get_server_list | {CONTROL} > /dev/null 2>&1; }}",
    "mps_start() {  # fails where the daemon does not answer: CUDA would run without MPS",
    f"  {CONTROL} -d 9>&- && for _ in $(seq 50); do",
    "    mps_answers && return",
    "    sleep 0.1",
    "  done",
    '  echo "MPS does not start. The end of its log:" >&2',
    '  tail -qn 9 "$CUDA_MPS_LOG_DIRECTORY"/*.log >&2 2> /dev/null || :',
    "  return 1",
    "}",
    "mps_stop() {  # asks again and again, and waits for its servers too, which hold the GPU",
    "  local said servers='' silent=0",
    "  for _ in $(seq 100); do",
    f"    if said=$(echo get_server_list | {CONTROL} 2> /dev/null); then",
    "      servers=${said:-$servers} silent=0",
    f"      echo quit | {CONTROL} > /dev/null 2>&1 || :",
    "    else",
    "      # shellcheck disable=SC2086",
    "      [ $((silent += 1)) -lt 2 ] || kill -0 $servers 2> /dev/null || return 0",
    "    fi",
    "    sleep 0.1",
    "  done",
    '  echo "MPS does not end. Its log: $CUDA_MPS_PIPE_DIRECTORY" >&2',
    "  return 1",
    "}",
)
"""Lines that define what `daemon_started`, `daemon_answers` and `daemon_stopped` call."""

# Where jobs without MPS look for a daemon, so that they do not find the machine's own.
_NO_MPS = (
    "NO_MPS=$(mktemp -d) || exit",
    'export CUDA_MPS_PIPE_DIRECTORY="$NO_MPS"  # jobs without MPS find no daemon there',
)

_CORES = """
cores() {  # numbers $1 to $2 of the cores that this shell may use, from FIRST_CORE on, then again
  # Where Slurm gives cores and does not bind to them, these would be everybody's: all, then.
  awk -v first=$((FIRST_CORE + $1)) -v last=$((FIRST_CORE + $2)) \\
    -v given="${SLURM_CPUS_ON_NODE:-0}" '/^Cpus_allowed_list:/ {
      parts = split($2, part, ",")
      for (at = 1; at <= parts; at++) {
        ends = split(part[at], end, "-")
        for (core = end[1] + 0; core <= end[ends] + 0; core++) may[count++] = core
      }
    }
    END {
      if (given + 0 && count > given + 0) { first = 0; last = count - 1 }
      for (at = first; at <= last; at++) printf "%s%s", (at > first ? "," : ""), may[at % count]
    }' /proc/self/status
}
"""


def core_words(partitions: Sequence[LaunchPartition], *, by_scheduler: bool) -> Iterator[str]:
    """Lines that define what `pinned` calls, if any job is pinned; and where its cores begin."""
    if any(start.cores for part in partitions for start in part.starts):
        if by_scheduler:
            yield "FIRST_CORE=0"
        else:
            yield "FIRST_CORE=${FIRST_CORE:-0}  # of the jobs; other scripts beside them: others"
        yield from _CORES.strip().splitlines()


def guard(
    partitions: Sequence[LaunchPartition],
    undo: Iterable[str] = (),
    definitions: Iterable[str] = (),
    *,
    by_scheduler: bool = False,
) -> Iterator[str]:
    """Lines before those that start anything: they end all of it, also on an interrupt.

    They use the traps of the shell, and its variables ``jobs`` and ``failed``.

    Args:
        partitions: Partitions whose daemons and jobs are started.
        undo: Lines that undo other settings.
        definitions: Lines that define what `undo` calls.
        by_scheduler: Whether a scheduler assigns cores.
    """
    served = [part for part in partitions if part.under_mps]
    no_mps = len(served) < len(partitions)
    folders = [*map(folder, served), *["NO_MPS"] * no_mps]
    yield "set -euo pipefail"
    yield NOBODYS_MPS
    yield from secrets(start for part in partitions for start in part.starts)
    yield from core_words(partitions, by_scheduler=by_scheduler)
    yield " ".join(["jobs='' failed=0", *(f"{name}=''" for name in folders)])
    # A session each, so that a job's own processes end with it.
    yield 'job() { setsid "$@" & jobs="$jobs $!"; }'
    yield 'ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }'
    yield from _stop(served, [*undo, *['rm -rf "$NO_MPS"'] * no_mps])
    if served:
        yield from MPS_WORDS
    yield from definitions
    yield "trap stop EXIT"
    yield "trap 'exit 130' INT"
    yield "trap 'exit 143' HUP TERM"
    yield from _NO_MPS if no_mps else ()


def _stop(served: Sequence[LaunchPartition], undo: Iterable[str]) -> Iterator[str]:
    """The shell function that ends jobs and daemons, and undoes other settings."""
    yield "stop() {  # also when interrupted, and whatever fails"
    yield "  set +e"
    yield "  trap '' INT HUP TERM"
    yield "  for each in $jobs; do"
    yield '    kill -s TERM -- "-$each" || kill -s TERM "$each"'
    yield "  done 2> /dev/null"
    yield "  wait"
    for part in served:
        yield f"  [ -z {_value(part)} ] || {{ {daemon_stopped(part)} && rm -rf {_value(part)}; }}"
    yield from (f"  {line}" for line in undo)
    yield "}"


STATUS = 'exit "$failed"'
"""The last line after those of `guard`: says whether a job failed."""


def device(part: LaunchPartition) -> str:
    """The setting with which a process, or an MPS daemon, sees only this partition.

    MIG devices get their UUIDs when they are made, so variables stand for them.
    """
    name = "GPU" if part.instance is None else f"MIG_{part.number}"
    return f'CUDA_VISIBLE_DEVICES="${name}"'


def device_of_job(part: LaunchPartition) -> str:
    """As `device`, for a job: clients of an MPS daemon that sees one GPU see it as device 0."""
    return "CUDA_VISIBLE_DEVICES=0" if renumbered(part) else device(part)


def renumbered(part: LaunchPartition) -> bool:
    """Whether jobs see another GPU number than their shell, as clients of an MPS daemon do."""
    return part.under_mps and part.instance is None


def folder(part: LaunchPartition) -> str:
    """The variable that holds the folder of the partition's MPS daemon."""
    return f"MPS_{part.number}"


def daemon_started(part: LaunchPartition) -> str:
    """Lines that start the MPS daemon of a partition, and fail if it does not answer."""
    return f"{_pipes(part)} CUDA_MPS_LOG_DIRECTORY={_value(part)} mps_start"


def daemon_answers(part: LaunchPartition) -> str:
    return f"{_pipes(part)} mps_answers"


def daemon_stopped(part: LaunchPartition) -> str:
    return f"{_pipes(part)} mps_stop"


def folder_removed(part: LaunchPartition) -> str:
    """Removes the folder of a daemon that has ended; what else writes there fails nothing."""
    return f"rm -rf {_value(part)} || :"


def client(part: LaunchPartition, start: Start) -> list[str]:
    """Settings of a job as an MPS client; none if its partition is not under MPS."""
    if not part.under_mps:
        return []
    own = client_variables(start.limit, start.memory_cap_mib)
    return [_pipes(part), *(f"{name}={value}" for name, value in own.items())]


def pinned(start: Start) -> list[str]:
    """Command that pins a job to its cores; empty if their number is not known."""
    if start.cores is None:
        return []
    first, last = start.cores
    return ["taskset", "-c", f'"$(cores {first} {last})"']


def numbered(start: Start) -> str:
    """The setting that tells a job its number, by which equal jobs know each other apart."""
    return f"ADVISOR_JOB={start.number}"


def command(start: Start) -> str:
    """Command that runs the job's script in its folder, or a placeholder for the user's own.

    Secrets are left to the environment of whoever runs it.
    """
    script = start.job.profile.workload.script
    if script is None:
        return shlex.quote(f"./{start.job.name}.sh")
    given = (
        f"{name}={_asked(name) if is_secret(name) else shlex.quote(value)}"
        for name, value in script.environment.items()
    )
    first = ["env", "-C", shlex.quote(script.folder), *given]
    return " ".join([*first, shlex.join(script.command)])


def without_mps(start: Start) -> str:
    """A line of plain sh that runs a job which finds no MPS daemon, not even its machine's own."""
    settings = f'CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" {numbered(start)}'
    return (
        f"NO_MPS=$(mktemp -d) && {settings} {command(start)}; failed=$?; "
        f'rm -rf "$NO_MPS"; exit "$failed"'
    )


def secrets(starts: Iterable[Start]) -> Iterator[str]:
    """Lines that stop a script, before it starts anything, where a secret of a job is not set."""
    scripts = (start.job.profile.workload.script for start in starts)
    names = (name for script in scripts if script for name in script.environment)
    yield from dict.fromkeys(f": {_asked(name)}" for name in names if is_secret(name))


def own_commands_wanted(plan: LaunchPlan) -> Iterator[str]:
    """A comment, where a script of `plan` stands for a command that only its user knows."""
    if any(start.job.profile.workload.script is None for start in plan.starts):
        yield "# Put your own command in place of each ./NAME.sh; ADVISOR_JOB tells it its number."


def _asked(name: str) -> str:
    return f'"${{{name}:?set {name}}}"'


def _pipes(part: LaunchPartition) -> str:
    return f"CUDA_MPS_PIPE_DIRECTORY={_value(part)}"


def _value(part: LaunchPartition) -> str:
    return f'"${folder(part)}"'
