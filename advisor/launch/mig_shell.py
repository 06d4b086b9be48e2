"""Shell lines that make MIG instances for a plan, find their devices, and remove them again.

After NVIDIA's MIG User Guide, Getting Started: GPU instances by profile id and first memory slice,
compute instances of a divided one by name, the largest first, since the driver chooses their
places. Instances of others are left alone, unless ADVISOR_REPLACE is set: then idle ones that are
in the way are removed, and made again at the end. Untested on MIG hardware.
"""

from collections.abc import Iterator, Sequence

from advisor.hardware.catalogue import Gpu
from advisor.hardware.mig_layouts import profile_of
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Stage
from advisor.sharing import Instance

_WORDS = r"""
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
"""


def words() -> list[str]:
    """Lines that define the functions for all others here, and for `undo`."""
    return _WORDS.strip().splitlines()


def mode_noted(plan: LaunchPlan) -> Iterator[str]:
    """Lines that note the MIG mode, where `plan` switches it."""
    if switches_mode(plan):
        query = "--query-gpu=mig.mode.current --format=csv,noheader"
        yield f'mode=$(nvidia-smi -i "$GPU" {query}) || exit'
        yield 'note "mode $mode"'


def mode(plan: LaunchPlan, *, on: bool) -> str:
    """Lines that check MIG mode, and switch it where `plan` needs it both on and off."""
    words = ("Disabled 0", "Enabled 1")[on]
    return f"mig_{'switch' if switches_mode(plan) else 'is'} {words} || exit"


def made(stage: Stage, gpu: Gpu) -> Iterator[str]:
    """Lines that make the stage's instances, and set ``MIG_n`` to the UUID of partition n."""
    whole, divided = cut(stage, gpu)
    rows = {_place(each, gpu): profile_of(gpu, each.profile) for each in _instances(stage)}
    taken = (f"{place.partition(':')[2]}:{row.memory_slices}" for place, row in rows.items())
    yield f"mig_clear {' '.join(taken)} || exit"
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


def _instances(stage: Stage) -> list[Instance]:
    return [part.instance for part in stage.partitions if part.instance]


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


def switches_mode(plan: LaunchPlan) -> bool:
    """Whether some groups of `plan` are on MIG and others are not."""
    return len({stage.on_mig for stage in plan.stages}) > 1
