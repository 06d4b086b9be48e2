"""Words of shell lines that start jobs: their environment and MPS daemons.

Environment variables as in NVIDIA's MPS documentation, Environment Variables, and its MIG User
Guide, MIG with CUDA MPS: one daemon for each MIG device, with a folder of its own. If no daemon
answers, CUDA silently runs without MPS: so the script checks each daemon before a job starts.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from advisor.hardware.gpus import Gpu
from advisor.hardware.machine import client_variables
from advisor.hardware.mig import profile_of
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Stage, Start
from advisor.launch.shell_state import START_WORDS, lock_words, state_words
from advisor.sharing import Instance
from advisor.workload.spec import is_secret

WHOLE_WANTED = r"""
mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current --format=csv,noheader 2> /dev/null) || :
[ "$mode" != Enabled ] || {
  echo "GPU $GPU is in MIG mode: jobs planned for all of it would share its first instance. While" \
    "nothing runs there: sudo nvidia-smi -i $GPU -mig 0. Or choose a plan of MIG instances" >&2
  exit 1
}
""".strip().splitlines()
"""Lines that stop a script for a whole GPU if that is in MIG mode."""

VISIBLE = r"""
# Programs call int() on CUDA_VISIBLE_DEVICES: the index, unless a GPU here is in MIG mode. CUDA
# leaves such GPUs out where it counts, so then the UUID.
DEVICE=$({ nvidia-smi --query-gpu=index,uuid,mig.mode.current --format=csv,noheader || :; } \
  2> /dev/null | awk -F ', ' -v gpu="$GPU" '$3 == "Enabled" { mig = 1 }
    $1 == gpu || index($2, gpu) == 1 { index_of = $1; uuid = $2 }
    END { print uuid == "" ? gpu : mig ? uuid : index_of }')
""".strip().splitlines()
"""Lines that set ``DEVICE`` to what a job is given as the whole GPU."""

MIG_WORDS = r"""
mig() { as_root nvidia-smi mig -i "$GPU" "$@"; }
mig_is() {  # whether MIG mode is $1, now and after a reset
  local mode
  mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current,mig.mode.pending \
    --format=csv,noheader) || return
  [ "$mode" != "$1, $1" ] || return 0
  echo "GPU $GPU: MIG mode, now and after a reset: $mode. It must be $1. While nothing runs" \
    "there: sudo nvidia-smi -i $GPU -mig $2; if it stays pending, --gpu-reset" >&2
  return 1
}
mig_list() {  # to have none is an error to nvidia-smi, and none here
  local said
  said=$(mig "$@" 2>&1) || case $said in
  *"Not Found"* | *"No "*"instances found"*) said= ;;
  *) echo "$said" >&2; return 1 ;;
  esac
  echo "$said"
}
mig_gi() {  # the ID of the GPU instance PROFILE:START; nothing where there is none
  local list
  list=$(mig_list -lgi) || return
  awk -v profile="${1%:*}" -v start="${1#*:}:" \
    '$3 == "MIG" && $5 == profile && index($7, start) == 1 { print $6 }' <<< "$list"
}
mig_clear() {  # if ADVISOR_REPLACE is set, removes what is in memory slices START:SIZE
  local each list gi place parts
  [ -n "${ADVISOR_REPLACE-}" ] || return 0
  for each in "$@"; do
    list=$(mig_list -lgi) || return
    while read -r gi place <&7; do
      parts=$(mig_list -lci -gi "$gi") || return
      parts=$(awk '$4 == "MIG" { print $8, $5 }' <<< "$parts" | sort -n | awk '{ print $2 }')
      note "took $place ${parts//$'\n'/,}" || return
      mig_remove "$place" || return
    done 7< <(awk -v from="${each%:*}" -v size="${each#*:}" '$3 == "MIG" { split($7, at, ":")
      if (at[1] < from + size && from < at[1] + at[2]) print $6, $5 ":" at[1] }' <<< "$list")
  done
}
mig_make() {  # makes GPU instances PROFILE:START; with compute instances where $1 is -C
  local how=$1 each there
  shift
  for each in "$@"; do
    there=$(mig_gi "$each") || return
    [ -z "$there" ] || { echo "GPU $GPU: $each is there already, somebody else's" >&2; return 1; }
  done
  for each in "$@"; do note "made $each" || return; done
  (IFS=,; mig -cgi "$*" ${how:+"$how"})
}
mig_split() {  # makes compute instances of these names in the GPU instance PROFILE:START
  local gi
  gi=$(mig_gi "$1") || return
  mig -cci "$2" -gi "$gi"
}
mig_uuid() {  # of the compute instance number $3 called $2, or of the only one, in PROFILE:START
  local gi list ci found
  gi=$(mig_gi "$1") && list=$(mig_list -lci -gi "$gi") || return
  ci=$(awk -v name="${2:-}" -v nth="${3:-1}" \
    '$4 == "MIG" && (name == "" || $5 == name) && ++n == nth { print $7 }' <<< "$list")
  list=$(nvidia-smi -i "$GPU" -q) || return
  found=$(awk -F ' *: *' -v gi="$gi" -v ci="$ci" '/^ +Index / { index_of = $2 }
    /GPU Instance ID/ { in_gi = $2 == gi }
    /Compute Instance ID/ && in_gi && $2 == ci { print index_of; exit }' <<< "$list")
  list=$(nvidia-smi -L) || return
  awk -v gpu="$GPU" -v device="$found:" '/^GPU / { on = $2 == gpu ":" || index($0, ": " gpu ")") }
    on && $1 == "MIG" && $4 == device { sub(/\)$/, "", $6); print $6; found = 1; exit }
    END { exit !found }' <<< "$list" || { echo "GPU $GPU: no MIG device in $1" >&2; return 1; }
}
mig_remove() {  # the GPU instance PROFILE:START; again and again, since that fails for a moment
  local gi
  for _ in $(seq 50); do
    if gi=$(mig_gi "$1"); then
      [ -n "$gi" ] || return 0
      mig -dci -gi "$gi" > /dev/null 2>&1 || :
      mig -dgi -gi "$gi" > /dev/null 2>&1 || :
    fi
    sleep 0.2
  done
  echo "GPU $GPU: $1 is not removed: something runs on it. See sudo nvidia-smi mig -i $GPU -lgi" >&2
  return 1
}
mig_again() {  # makes the GPU instance PROFILE:START again, with compute instances of these names
  local gi parts
  gi=$(mig_gi "$1") || return
  [ -n "$gi" ] || { mig -cgi "$1" > /dev/null && gi=$(mig_gi "$1"); } || return
  parts=$(mig_list -lci -gi "$gi") || return
  case $parts in *MIG*) return 0 ;; esac
  [ -z "${2-}" ] || mig -cci "$2" -gi "$gi" > /dev/null
}
mig_switch() { mig_is "$@" 2> /dev/null || as_root nvidia-smi -i "$GPU" -mig "$2" && mig_is "$@"; }
mig_back() { case $1 in Enabled) mig_switch Enabled 1 ;; *) mig_switch Disabled 0 ;; esac; }
""".strip().splitlines()
"""Lines that define the functions for MIG instances, and for `undo`."""


def which_gpu(device: int | str | None, partitions: Sequence[LaunchPartition]) -> Iterator[str]:
    """Yield lines that set ``GPU``, and have CUDA count GPUs as nvidia-smi does, by their buses.

    Args:
        device: Index or UUID; None: the caller's variable ``GPU``, else the first.
        partitions: Those of the plan.
    """
    own = "${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them"
    yield f"GPU={own if device is None else device}"
    yield "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
    if any(part.under_mps and part.instance is None for part in partitions):
        yield "CLIENT=0  # a client of MPS counts the GPUs of its daemon, which sees one"
        yield "case $GPU in MIG-*) CLIENT=$GPU ;; esac"


def make_instances(stage: Stage, gpu: Gpu) -> Iterator[str]:
    """Yield lines that make the stage's instances, and set ``MIG_n`` to the UUID of partition n.

    If the caller has set these, no instance is made.

    The commands follow NVIDIA's MIG User Guide, Getting Started: GPU instances by profile id and
    first memory slice, compute instances of a divided one by name. The largest come first, because
    the driver chooses the places of compute instances. Instances of others are left alone. If
    ADVISOR_REPLACE is set, idle ones that are in the way are removed, and made again at the end.
    Untested on MIG hardware.
    """
    on_mig = [part for part in stage.partitions if part.instance]
    named = ", ".join(f"MIG_{part.number} ({part.profile})" for part in on_mig)
    yield f"# Instances that are there already: set {named} to their UUIDs."
    yield f'if [ -z "${{MIG_{on_mig[0].number}-}}" ]; then'
    yield from (f"  {line}" for line in _made(stage, gpu))
    yield "fi"


def _made(stage: Stage, gpu: Gpu) -> Iterator[str]:
    whole, divided = cut_instances(stage, gpu)
    instances = dict.fromkeys(part.instance for part in stage.partitions if part.instance)
    taken = (f"{one.start}:{profile_of(gpu, one.profile).memory_slices}" for one in instances)
    yield f"mig_clear {' '.join(taken)} || exit"
    if whole:
        yield f"mig_make -C {' '.join(whole)} || exit"
    for place, names in divided.items():
        yield f"mig_make '' {place} || exit"
        yield f"mig_split {place} {','.join(names)} || exit"
    counts = Counter[tuple[str, str]]()
    for part, instance in [(part, part.instance) for part in stage.partitions if part.instance]:
        place, name = _place(instance, gpu), "" if part.slices is None else str(part.profile)
        counts[place, name] += 1
        words = [place, *([name, str(counts[place, name])] if name else [])]
        yield f"MIG_{part.number}=$(mig_uuid {' '.join(words)}) || exit"


def cut_instances(stage: Stage, gpu: Gpu) -> tuple[list[str], dict[str, list[str]]]:
    """Return arguments of ``-cgi`` and ``-cci``, largest first; instances are ``ID:START``.

    Returns:
        Those with one compute instance, and the names of the compute instances of each other.
    """
    parts: dict[Instance, list[LaunchPartition]] = defaultdict(list)
    for part in stage.partitions:
        if part.instance:
            parts[part.instance].append(part)
    whole: list[str] = []
    divided: dict[str, list[str]] = {}
    for instance in sorted(
        parts, key=lambda each: (-profile_of(gpu, each.profile).memory_slices, each.start)
    ):
        if parts[instance][0].slices is None:
            whole.append(_place(instance, gpu))
        else:
            own = sorted(parts[instance], key=lambda part: -(part.slices or 0))
            divided[_place(instance, gpu)] = [str(part.profile) for part in own]
    return whole, divided


def _place(instance: Instance, gpu: Gpu) -> str:
    return f"{profile_of(gpu, instance.profile).profile_id}:{instance.start}"


_HOOK_PATH = {"PYTHONPATH": '"${ADVISOR_HOOK_PATH:+$ADVISOR_HOOK_PATH:}"'}

NOBODYS_MPS = 'unset "${!CUDA_MPS_@}"'
"""Keeps the daemon and the limits that the caller's environment names from all jobs."""

# Where jobs without MPS look for a daemon, so that they do not find the machine's own.
_NO_MPS = (
    'NO_MPS=$(mktemp -d /tmp/advisor-none.XXXXXX) && note "folder $NO_MPS" || exit',
    'export CUDA_MPS_PIPE_DIRECTORY="$NO_MPS"  # jobs without MPS find no daemon there',
)


def guard(
    partitions: Sequence[LaunchPartition], first: Iterable[str] = (), *,
    cap: bool = False, mig: bool = False, by_scheduler: bool = False,
) -> Iterator[str]:  # fmt: skip
    """Yield lines before those that start anything: the traps that end and undo all of it.

    Args:
        partitions: Partitions whose daemons and jobs are started.
        first: Lines that say which GPU it is.
        cap: Whether a power cap is set.
        mig: Whether MIG instances are made.
        by_scheduler: Whether a scheduler assigns GPUs.
    """
    yield "set -euo pipefail"
    yield NOBODYS_MPS
    yield from secrets(start for part in partitions for start in part.starts)
    yield from first
    yield from state_words(mps=any(part.under_mps for part in partitions), cap=cap, mig=mig)
    yield from MIG_WORDS if mig else ()
    yield from START_WORDS
    yield from lock_words(by_scheduler=by_scheduler)
    yield from () if all(part.under_mps for part in partitions) else _NO_MPS


STATUS = 'exit "$failed"'
"""The last line after those of `guard`: its status is that of a job that failed."""


def folder(part: LaunchPartition) -> str:
    """Return the variable with the folder of the partition's MPS daemon."""
    return f"MPS_{part.number}"


def daemon(part: LaunchPartition, verb: str) -> str:
    """Return a line that does something with the partition's MPS daemon.

    Args:
        part: The partition.
        verb: ``"start"``, which fails if the daemon does not answer, ``"answers"`` or ``"stop"``.
    """
    log = f' CUDA_MPS_LOG_DIRECTORY="${folder(part)}"' if verb == "start" else ""
    return f"{_pipes(part)}{log} mps_{verb}"


def _pipes(part: LaunchPartition) -> str:
    return f'CUDA_MPS_PIPE_DIRECTORY="${folder(part)}"'


def device(part: LaunchPartition, whole: str = "GPU") -> str:
    """Return the setting by which a process sees only this partition; `whole` names the whole GPU.

    MIG devices get their UUIDs when they are made, so variables stand for them.
    """
    name = whole if part.instance is None else f"MIG_{part.number}"
    return f'CUDA_VISIBLE_DEVICES="${name}"'


def settings(part: LaunchPartition, start: Start, *, by_scheduler: bool = False) -> list[str]:
    """Return the environment of a job: its number, its device, its limits as an MPS client.

    Devices are left out if a scheduler assigns them; only a client of an MPS daemon counts from 0.
    """
    words = [_numbered(start)]
    if part.under_mps and part.instance is None:
        words.append(f"CUDA_VISIBLE_DEVICES={0 if by_scheduler else '$CLIENT'}")
    elif not by_scheduler:
        words.append(device(part, "DEVICE"))
    if part.under_mps:
        variables = client_variables(start.limit, start.memory_cap_mib)
        words += [_pipes(part), *(f"{name}={value}" for name, value in variables.items())]
    return words


def _numbered(start: Start) -> str:
    """The setting with a job's number, by which equal jobs differ."""
    return f"ADVISOR_JOB={start.number}"


def command(start: Start) -> str:
    """Return the command of the job's script in its folder, or a placeholder for the user's own.

    Secrets come from the caller's environment. ``ADVISOR_HOOK_PATH`` goes before ``PYTHONPATH``.
    """
    script = start.job.profile.workload.script
    if script is None:
        return shlex.quote(f"./{start.job.name}.sh")
    first = ["env", "-C", shlex.quote(script.folder)]
    for name, value in script.environment.items():
        own = _required(name) if is_secret(name) else shlex.quote(value)
        first.append(f"{name}={_HOOK_PATH.get(name, '')}{own}")
    return " ".join([*first, shlex.join(script.command)])


def without_mps(start: Start) -> str:
    """Return a line of plain sh that runs a job without any MPS daemon, even the machine's own."""
    settings = f'CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" {_numbered(start)}'
    return (
        f"NO_MPS=$(mktemp -d /tmp/advisor-none.XXXXXX) && {settings} {command(start)}; failed=$?; "
        f'rm -rf "$NO_MPS"; exit "$failed"'
    )


def secrets(starts: Iterable[Start]) -> Iterator[str]:
    """Yield lines that stop a script before it starts anything if a secret of a job is not set."""
    scripts = (start.job.profile.workload.script for start in starts)
    names = (name for script in scripts if script for name in script.environment)
    yield from dict.fromkeys(f": {_required(name)}" for name in names if is_secret(name))


def own_commands_wanted(plan: LaunchPlan) -> Iterator[str]:
    """Yield a comment if `plan` has placeholders for the user's own commands."""
    if any(start.job.profile.workload.script is None for start in plan.starts):
        yield "# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number."


def _required(name: str) -> str:
    return f'"${{{name}:?set {name}}}"'


_VERBS = r"""
state=$1
case $2 in
stop)
  end_jobs "$(sed -n 's/^jobs //p' "$state" | tail -n 1)-$3-" "${ADVISOR_GRACE_S:-30}"
  ;;
undo)
  exec 9>> "$state"
  flock -n 9 || { echo "$state: its script goes on" >&2; exit 1; }
  grep -qsx "boot $(< /proc/sys/kernel/random/boot_id)" "$state" || { : > "$state"; exit; }
  GPU=$(sed -n 's/^gpu //p' "$state" | tail -n 1)
  ADVISOR_RUN=$(sed -n 's/^run //p' "$state" | tail -n 1)
  [ -d "$ADVISOR_RUN" ] || ADVISOR_RUN=
  trap '' INT HUP TERM
  undo && : > "$state" && event "over 1"
  ;;
esac
"""


def undo_script() -> str:
    """Return a bash script with the words STATE stop JOB, or STATE undo; STATE is a state file."""
    words = state_words(mps=True, cap=True, mig=True)
    return "\n".join(["set -uo pipefail", *words, *MIG_WORDS, *_VERBS.strip().splitlines()])
