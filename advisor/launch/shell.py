"""Words of shell lines that start jobs: their environment, their cores, MPS daemons.

Environment variables as in NVIDIA's MPS documentation, Environment Variables, and its MIG User
Guide, MIG with CUDA MPS: one daemon for each MIG device, with a folder of its own. Where no daemon
answers, CUDA runs without MPS and says nothing: so each is asked before a job starts.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from advisor.hardware.mps import client_variables
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start
from advisor.launch.shell_state import lock_words, start_words, state_words
from advisor.workload.secret_names import is_secret

_HOOK_PATH = {"PYTHONPATH": '"${ADVISOR_HOOK_PATH:+$ADVISOR_HOOK_PATH:}"'}

NOBODYS_MPS = 'unset "${!CUDA_MPS_@}"'
"""Keeps the daemon and the limits that the caller's environment names from all jobs."""

# Where jobs without MPS look for a daemon, so that they do not find the machine's own.
_NO_MPS = (
    'NO_MPS=$(mktemp -d /tmp/advisor-none.XXXXXX) && note "folder $NO_MPS" || exit',
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
    first: Iterable[str] = (),
    *,
    cap: bool = False,
    mig: Iterable[str] = (),
    by_scheduler: bool = False,
) -> Iterator[str]:
    """Lines before those that start anything: the traps by which all of it ends and is undone.

    Args:
        partitions: Partitions whose daemons and jobs are started.
        first: Lines that say which GPU it is.
        cap: Whether a power cap is set.
        mig: Lines that define how MIG instances are made and removed, if any are.
        by_scheduler: Whether a scheduler assigns GPUs and cores.
    """
    served = any(part.under_mps for part in partitions)
    mig = list(mig)
    yield "set -euo pipefail"
    yield NOBODYS_MPS
    yield from secrets(start for part in partitions for start in part.starts)
    yield from core_words(partitions, by_scheduler=by_scheduler)
    yield from first
    yield from state_words(mps=served, cap=cap, mig=bool(mig))
    yield from mig
    yield from start_words()
    yield from lock_words(by_scheduler=by_scheduler)
    yield from () if all(part.under_mps for part in partitions) else _NO_MPS


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

    Secrets are left to the environment of whoever runs it. ``ADVISOR_HOOK_PATH`` goes before the
    job's own ``PYTHONPATH``.
    """
    script = start.job.profile.workload.script
    if script is None:
        return shlex.quote(f"./{start.job.name}.sh")
    first = ["env", "-C", shlex.quote(script.folder)]
    for name, value in script.environment.items():
        own = _asked(name) if is_secret(name) else shlex.quote(value)
        first.append(f"{name}={_HOOK_PATH.get(name, '')}{own}")
    return " ".join([*first, shlex.join(script.command)])


def without_mps(start: Start) -> str:
    """A line of plain sh that runs a job which finds no MPS daemon, not even its machine's own."""
    settings = f'CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" {numbered(start)}'
    return (
        f"NO_MPS=$(mktemp -d /tmp/advisor-none.XXXXXX) && {settings} {command(start)}; failed=$?; "
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
