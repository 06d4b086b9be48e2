#!/usr/bin/env bash
# mig=3g.71gb,4g.71gb@0 on h200-141gb.
# Untested on MIG hardware: written from NVIDIA's documentation. Nothing else may run on the GPU.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number.
plan() {
  mig_mode Enabled 1
  # Instances that are there already: set MIG_1 (3g.71gb), MIG_2 (4g.71gb) to their UUIDs.
  if [ -z "${MIG_1-}" ]; then
    mig_clear 4:4 0:4
    mig_make -C 5:0 9:4
    MIG_1=$(mig_uuid 9:4)
    MIG_2=$(mig_uuid 5:0)
  fi
  use "$MIG_1"
  job 1 ./resnet50-imagenet64-bs128.sh
  use "$MIG_2"
  job 2 ./bert-base-finetune-bs16-loader2.sh
  wait_for_jobs
}
set -euo pipefail
unset "${!CUDA_MPS_@}"; export CUDA_DEVICE_ORDER=PCI_BUS_ID  # GPUs count as in nvidia-smi
GPU=${GPU:-0} run=${ADVISOR_RUN-} undos=() jobs='' failed=0 mark=$(< /proc/sys/kernel/random/uuid)
fail() { echo "$*" >&2; exit 1; }; trap 'exit 131' QUIT  # which bash ignores otherwise
find_gpu() {  # its UUID, and its index, which beside a GPU in MIG mode CUDA would count otherwise
  uuid=$GPU index=$GPU client=$GPU mode=''
  [[ $GPU != cpu* && $GPU != MIG-* ]] && type -t nvidia-smi > /dev/null || return 0
  read -r uuid index client mode < <(timeout 60 nvidia-smi --query-gpu=uuid,index,mig.mode.current \
    --format=csv,noheader | awk -F ', ' -v gpu="$GPU" '$3 == "Enabled" { mig = 1 }
    gpu == $2 || index($1, gpu) == 1 { uuid = $1; n = $2; mode = $3 }
    END { if (uuid) print uuid, mig ? uuid : n, 0, mode }') || fail "GPU $GPU: see nvidia-smi -L"
  [ "$mode" != Enabled ] || [ "$1" = mig ] || fail "GPU $GPU is in MIG mode. Run sudo nvidia-smi" \
    "-i $GPU -mig 0 while nothing runs there, or choose a plan of MIG instances."
}
job_groups() {  # the process groups, as -GROUP, of all processes whose mark begins with $1
  { grep -lsz "^ADVISOR_MARK=$1" /proc/[0-9]*/environ | sed 's/environ$/stat/' |
    xargs -r sed 's/.*) . [0-9]* \([0-9]*\) .*/-\1/' | sort -u; } 2> /dev/null || :
}
end_jobs() {  # asks all processes whose mark begins with $1 to end; after $2 seconds kills them
  local left n grace_s=${2:-${ADVISOR_GRACE_S:-30}}
  for ((n = 0; n < grace_s * 5 + 50; n++)); do
    mapfile -t left < <(job_groups "$1"); [ "${#left[@]}" -gt 0 ] || return 0
    kill -$((n == 0 ? 15 : n < grace_s * 5 ? 0 : 9)) -- "${left[@]}" 2> /dev/null || :
    sleep 0.2
  done
  return 1
}
event() { [ -z "$run" ] || echo "$* $(cut -d ' ' -f 1 /proc/uptime)" >> "$run/events"; }
undo_by() { printf 'undos[%d]=%q\n' "${#undos[@]}" "$*" >> "$state" && undos+=("$*"); }
undo() {  # ends all jobs, then undoes the changes from the last to number $1
  local n bad=0; end_jobs "$mark-" || bad=1
  for ((n = ${#undos[@]} - 1; n >= $1; n--)); do
    if ${undos[n]} || ${undos[n]}; then undos[n]=:; echo "undos[$n]=:" >> "$state"; else bad=1; fi
  done || :  # a full disk hinders no undoing
  [ "$bad" = 0 ] || { echo "Not all is undone, the next run tries again: $state" >&2; return 1; }
}
stop() {  # at every end of the script, with status $1 at a signal; further signals change nothing
  local status=${1-$?} left; trap '' HUP INT QUIT PIPE TERM; trap - EXIT; set +e
  # Again and again: a job that only begins has no mark yet. Bash may list some that have ended.
  while mapfile -t left < <(jobs -pr); kill -0 "${left[@]}" 2> /dev/null && end_jobs "$mark-"
  do sleep 0.1; done
  undo 0 && rm -f "$state" || status=1; wait; event "over $status"; exit "$status"
}
begin() {  # locks the GPU, and undoes what a killed script left there, or a shell of this one
  event "script $$"; find_gpu mig
  state=${XDG_STATE_HOME:-$HOME/.local/state}/advisor/gpus/$(uname -n)-$uuid.sh
  mkdir -p "${state%/*}" && exec 9>> "$state.lock"
  flock -w 2 9 || fail "GPU $index: another script runs jobs there. It wrote $state"
  boot="# boot $(< /proc/sys/kernel/random/boot_id)"
  ! grep -qsx "$boot" "$state" ||
    (my=$mark; eval "$(< "$state")"; [[ $mark = "$my"* || -z $(job_groups "$mark-") ]] && undo 0) ||
    fail "GPU $GPU: jobs of a killed script go on, or it is not undone: advisor doctor --undo"
  find_gpu "$1"; mark+=-$index; trap stop EXIT
  trap 'stop 129' HUP; trap 'stop 130' INT; trap 'stop 131' QUIT; trap 'stop 143' TERM
  (umask 077; { declare -p GPU uuid mark run state; declare -f; echo "$boot"; } > "$state")
}
job() {  # starts command $2... as job $1 in a session of its own; what it leaves ends with it
  (
    status=0; [ -z "$run" ] || exec > "$run/job-$1.log" 2>&1; event "started $1"
    ADVISOR_JOB=$1 ADVISOR_MARK=$mark-$1- ADVISOR_PROGRESS=${run:+$run/job-$1.progress} \
      CUDA_VISIBLE_DEVICES=$device CUDA_MPS_PIPE_DIRECTORY=$pipes \
      setsid bash -c 'trap : TERM; "$@"; exit $?' job "${@:2}" || status=$?
    end_jobs "$mark-$1-" 2 || :; event "ended $1 $status"
    [ ! -d "${ADVISOR_LOADER-}" ] || : > "$ADVISOR_LOADER/gone-$1" || :; exit "$status"
  ) 9>&- & jobs+=" $!"
}
wait_for_jobs() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=''; }
use() { device=${1:-$index} pipes=/dev/null; }  # for the next jobs, without MPS
smi() { timeout 60 nvidia-smi "$@"; }
as_root() { if [ "$EUID" = 0 ]; then smi "$@"; else sudo nvidia-smi "$@"; fi; }
query() { smi -i "$uuid" --query-gpu="$1" --format=csv,noheader,nounits; }
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
begin mig; plan; exit "$failed"
