# A bare return in a trap returns the status from before the trap: hence each `return 1`.
mig() { as_root mig -i "$uuid" "$@"; }
mig_mode() {  # whether MIG mode is $1, now and after a reset; $2 is what nvidia-smi -mig calls it
  local now
  now=$(query mig.mode.current,mig.mode.pending) || return 1
  [ "$now" != "$1, $1" ] || return 0
  echo "GPU $GPU: MIG mode, now and after a reset: $now. It must be $1. While nothing runs there:" \
    "sudo nvidia-smi -i $GPU -mig $2; if it stays pending, --gpu-reset" >&2
  return 1
}
switch_mig() {
  for _ in 1 2 3; do
    ! mig_mode "$@" 2> /dev/null || return 0
    as_root -i "$uuid" -mig "$2" >&2 || :
  done
  mig_mode "$@"
}
keep_mig_mode() {  # puts MIG mode back at the end
  case $mode in Enabled) undo_by switch_mig Enabled 1 ;; *) undo_by switch_mig Disabled 0 ;; esac
  kept=${#undos[@]}
}
mig_list() {  # to have none is an error to nvidia-smi, and none here; no answer is an error
  local said
  if said=$(mig "$@" 2>&1); then
    [ -n "$said" ] || { echo "GPU $GPU: nvidia-smi mig $* printed nothing" >&2; return 1; }
    echo "$said"
  else
    case $said in *"Not Found"* | *"No "*"instances found"*) return 0 ;; esac
    echo "$said" >&2
    return 1
  fi
}
mig_gi() {  # the ID of the GPU instance PROFILE:START; nothing where there is none
  local list
  list=$(mig_list -lgi) || return 1
  awk -v profile="${1%:*}" -v start="${1#*:}:" \
    '$3 == "MIG" && $5 == profile && index($7, start) == 1 { print $6 }' <<< "$list"
}
mig_clear() {  # if ADVISOR_REPLACE is set, removes what is in memory slices START:SIZE
  local each list gi place parts
  [ -n "${ADVISOR_REPLACE-}" ] || return 0
  for each in "$@"; do
    list=$(mig_list -lgi) || return 1
    while read -r gi place <&7; do
      parts=$(mig_list -lci -gi "$gi") || return 1
      parts=$(awk '$4 == "MIG" { print $8, $5 }' <<< "$parts" | sort -n | awk '{ print $2 }')
      undo_by mig_again "$place" "${parts//$'\n'/,}" || return 1
      mig_remove "$place" || return 1
    done 7< <(awk -v from="${each%:*}" -v size="${each#*:}" '$3 == "MIG" { split($7, at, ":")
      if (at[1] < from + size && from < at[1] + at[2]) print $6, $5 ":" at[1] }' <<< "$list")
  done
}
mig_make() {  # makes GPU instances PROFILE:START; with compute instances where $1 is -C
  local how=$1 each there
  shift
  for each in "$@"; do
    there=$(mig_gi "$each") || return 1
    [ -z "$there" ] || { echo "GPU $GPU: $each is there already, somebody else's" >&2; return 1; }
  done
  for each in "$@"; do undo_by mig_remove "$each" || return 1; done
  (IFS=,; mig -cgi "$*" ${how:+"$how"})
}
mig_split() {  # makes compute instances of these names in the GPU instance PROFILE:START
  local gi
  gi=$(mig_gi "$1") || return 1
  mig -cci "$2" -gi "$gi"
}
mig_uuid() {  # of the compute instance number $3 called $2, or of the only one, in PROFILE:START
  local gi list ci found
  gi=$(mig_gi "$1") && list=$(mig_list -lci -gi "$gi") || return 1
  ci=$(awk -v name="${2:-}" -v nth="${3:-1}" \
    '$4 == "MIG" && (name == "" || $5 == name) && ++n == nth { print $7 }' <<< "$list")
  list=$(smi -i "$uuid" -q) || return 1
  found=$(awk -F ' *: *' -v gi="$gi" -v ci="$ci" '/^ +Index / { index_of = $2 }
    /GPU Instance ID/ { in_gi = $2 == gi }
    /Compute Instance ID/ && in_gi && $2 == ci { print index_of; exit }' <<< "$list")
  list=$(smi -L) || return 1
  awk -v gpu="$uuid" -v device="$found:" '/^GPU / { on = index($0, ": " gpu ")") }
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
  gi=$(mig_gi "$1") || return 1
  [ -n "$gi" ] || { mig -cgi "$1" > /dev/null && gi=$(mig_gi "$1"); } || return 1
  parts=$(mig_list -lci -gi "$gi") || return 1
  case $parts in *MIG*) return 0 ;; esac
  [ -z "${2-}" ] || mig -cci "$2" -gi "$gi" > /dev/null
}
