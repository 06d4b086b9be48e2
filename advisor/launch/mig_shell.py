"""Shell lines that make MIG instances for a plan, find their devices, and remove them again.

After NVIDIA's MIG User Guide, Getting Started: GPU instances by profile id and first memory slice,
compute instances of a divided one by name, the largest first, since the driver chooses their
places. What is made is written down first, in a file that no other run of the machine's shares and
that is locked meanwhile: what a killed script left, the next one removes. Instances that others
have made are left alone. Untested on MIG hardware.
"""

from collections.abc import Iterator, Sequence

from advisor.hardware.catalogue import Gpu
from advisor.hardware.mig_layouts import profile_of
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Stage
from advisor.launch.shell import folder
from advisor.sharing import Instance

_WORDS = r"""
made=${XDG_RUNTIME_DIR:-$HOME}/.advisor-mig-$GPU-$(< /proc/sys/kernel/random/boot_id)
exec 9>> "$made"  # jobs inherit it: what they run on is not removed
flock -n 9 || { echo "GPU $GPU: this runs already, or its jobs do. See $made" >&2; exit 1; }
mig() { sudo nvidia-smi mig -i "$GPU" "$@"; }
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
mig_make() {  # makes GPU instances PROFILE:START; with compute instances where $1 is -C
  local how=$1 each there
  shift
  for each in "$@"; do
    there=$(mig_gi "$each") || return
    [ -z "$there" ] || { echo "GPU $GPU: $each is there already, somebody else's" >&2; return 1; }
  done
  printf '%s\n' "$@" >> "$made" || return
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
mig_undo() {  # removes what was made; again and again, since that fails for a moment
  local each gi left
  while read -r each <&8; do
    case $each in /*)
      CUDA_MPS_PIPE_DIRECTORY=$each mps_stop || return
      rm -rf "$each"
      ;;
    esac
  done 8< "$made"
  for _ in $(seq 50); do
    left=
    while read -r each <&8; do
      case $each in /*) continue ;; esac
      gi=$(mig_gi "$each") || left=$each
      [ -n "$gi" ] || continue
      left=$each
      mig -dci -gi "$gi" > /dev/null 2>&1
      mig -dgi -gi "$gi" > /dev/null 2>&1
    done 8< "$made"
    [ -n "$left" ] || { : > "$made"; return; }
    sleep 0.2
  done
  echo "GPU $GPU: $left is not removed. Once nothing runs on it, run this again, or remove it:" \
    "sudo nvidia-smi mig -i $GPU -lgi, -dci, -dgi" >&2
  return 1
}
"""
_SWITCHING = """
mig_was=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current --format=csv,noheader) || exit
mig_switch() {
  mig_is "$@" 2> /dev/null || sudo nvidia-smi -i "$GPU" -mig "$2" && mig_is "$@"
}
mig_back() {
  case $mig_was in Enabled) mig_switch Enabled 1 ;; *) mig_switch Disabled 0 ;; esac
}
"""
UNDONE = "mig_undo || exit"
"""Removes what `made` made."""


def definitions(plan: LaunchPlan) -> Iterator[str]:
    """Lines that define the functions for all others here, and lock out a second run."""
    if plan.on_mig:
        yield from _WORDS.strip().splitlines()
        if _switches(plan):
            yield from _SWITCHING.strip().splitlines()


def undo(plan: LaunchPlan) -> Iterator[str]:
    """Lines that undo all of it, whatever has happened."""
    if plan.on_mig:
        yield "mig_undo"
        if _switches(plan):
            yield "mig_back"


def mode(plan: LaunchPlan, *, on: bool) -> str:
    """Lines that check MIG mode, and switch it where `plan` needs it both on and off."""
    words = ("Disabled 0", "Enabled 1")[on]
    return f"mig_{'switch' if _switches(plan) else 'is'} {words} || exit"


def made(stage: Stage, gpu: Gpu) -> Iterator[str]:
    """Lines that make the stage's instances, and set ``MIG_n`` to the UUID of partition n."""
    whole, divided = cut(stage, gpu)
    if whole:
        yield f"mig_make -C {' '.join(whole)} || exit"
    for place, names in divided.items():
        yield f"mig_make '' {place} || exit"
        yield f"mig_split {place} {','.join(names)} || exit"
    seen: dict[tuple[str, str | None], int] = {}
    for part in stage.partitions:
        name = part.profile if part.slices is not None else None
        key = (_place(part.instance, gpu), name)
        seen[key] = seen.get(key, 0) + 1
        which = f" {name} {seen[key]}" if name else ""
        yield f"MIG_{part.number}=$(mig_uuid {key[0]}{which}) || exit"


def daemon_noted(part: LaunchPartition) -> str:
    """Line that notes the folder of a partition's MPS daemon, so that undoing ends the daemon."""
    return f'echo "${folder(part)}" >> "$made"'


def cut(stage: Stage, gpu: Gpu) -> tuple[list[str], dict[str, list[str]]]:
    """Arguments of ``-cgi`` and ``-cci``, largest first; instances are ``ID:START``.

    Returns:
        Those with one compute instance, and the names of the compute instances of each other.
    """
    parts: dict[Instance, list[LaunchPartition]] = {}
    for part in stage.partitions:
        if part.instance:
            parts.setdefault(part.instance, []).append(part)
    largest_first = sorted(
        parts, key=lambda each: (-profile_of(gpu, each.profile).memory_slices, each.start)
    )
    whole = [_place(each, gpu) for each in largest_first if parts[each][0].slices is None]
    return whole, {
        _place(each, gpu): _names(parts[each]) for each in largest_first if parts[each][0].slices
    }


def _names(parts: Sequence[LaunchPartition]) -> list[str]:
    return [str(part.profile) for part in sorted(parts, key=lambda part: -(part.slices or 0))]


def _place(instance: Instance | None, gpu: Gpu) -> str:
    if instance is None:
        raise ValueError("a partition of the whole GPU has no place")
    return f"{profile_of(gpu, instance.profile).profile_id}:{instance.start}"


def _switches(plan: LaunchPlan) -> bool:
    """Whether some groups of `plan` are on MIG and others are not."""
    return len({stage.on_mig for stage in plan.stages}) > 1
