#!/usr/bin/env bash
# Untested on MIG hardware: written from NVIDIA's documentation. Nothing else may run on the GPU.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
GPU=${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them
export CUDA_DEVICE_ORDER=PCI_BUS_ID
note() { printf '%s\n' "$*" >> "$state"; }  # before each change: one line that tells how to undo it
event() {  # for whoever watches: what happened, and the seconds since the machine started
  [ -z "${ADVISOR_RUN-}" ] || echo "$* $(cut -d ' ' -f 1 /proc/uptime)" >> "$ADVISOR_RUN/events"
}
left() {  # the lines of the state file that are not undone: jobs, then the others, the last first
  awk '$1 == "undone" { sub(/^undone /, ""); delete at[$0]; next } { at[$0] = NR; line[NR] = $0 }
    END {
      for (jobs = 1; jobs >= 0; jobs--) for (n = NR; n; n--)
        if ((n in line) && at[line[n]] == n && jobs == (line[n] ~ /^jobs /)) print line[n]
    }' "$state"
}
born() {  # when a process that has not ended was born; a pid alone names none for long
  local stat
  { stat=$(< "/proc/$1/stat"); } 2> /dev/null || return
  read -ra stat <<< "${stat##*) }"
  [ "${stat[0]}" = Z ] || echo "${stat[19]}"
}
marked() {  # the processes of the jobs whose mark begins with $1
  local mark pid birth
  grep -lsz "^ADVISOR_MARK=$1" /proc/[0-9]*/environ | cut -d / -f 3 || :
  while read -r _ mark pid birth; do
    [ -n "$birth" ] || continue
    case $mark in "$1"*) [ "$(born "$pid")" != "$birth" ] || echo "$pid" ;; esac
  done < <(grep '^job ' "$state")
}
send() {  # a signal to the process groups of these processes, or to the processes alone
  local how=$1 each
  shift
  for each in "$@"; do kill -s "$how" -- "-$each" || kill -s "$how" "$each" || :; done 2> /dev/null
}
end_jobs() {  # asks what is marked $1 to end; after $2 seconds kills what is left
  local all now
  all=$(marked "$1") now=$all
  [ -n "$all" ] || return 0
  # shellcheck disable=SC2086
  send TERM $all
  for ((tries = $2 * 5; tries > 0; tries--)); do
    now=$(marked "$1")
    [ -n "$now" ] || break
    sleep 0.2
  done
  # shellcheck disable=SC2086
  ! declare -F mps_release > /dev/null || [ -z "$now" ] || mps_release $now
  # shellcheck disable=SC2086
  send KILL $all $now
  for ((tries = 50; tries > 0; tries--)); do
    now=$(marked "$1")
    [ -n "$now" ] || return 0
    # shellcheck disable=SC2086
    send STOP $now
    # shellcheck disable=SC2086
    send KILL $now
    sleep 0.1
  done
  echo "These processes do not end, see dmesg:" $now >&2
  return 1
}
as_root() { if [ "$EUID" = 0 ]; then "$@"; else sudo "$@"; fi; }
undo() {  # undoes the lines of the state file of these kinds, or all, the last first
  local line rest bad=0 kinds=" $* "
  while IFS= read -r line <&8; do
    [ "$kinds" = "  " ] || [[ $kinds == *" ${line%% *} "* ]] || continue
    rest=${line#* }
    case ${line%% *} in
    boot | gpu | script | run | job) continue ;;
    jobs) end_jobs "$rest-" "${ADVISOR_GRACE_S:-30}" ;;
    folder) case $rest in *advisor-*) rm -rf "$rest" ;; esac ;;
    made) mig_remove "$rest" ;;
    took) mig_again $rest ;;
    mode) mig_back $rest ;;
    *) false ;;
    esac && note "undone $line" || {
      echo "not undone: $line, in $state. Try again: advisor doctor --undo" >&2
      bad=1
    }
  done 8< <(left)
  return $bad
}
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
jobs='' failed=0 mark=$(< /proc/sys/kernel/random/uuid)
job() {  # starts a job in a session of its own; all of its processes end with it
  (
    if [ -n "${ADVISOR_RUN-}" ]; then
      exec > "$ADVISOR_RUN/job-$ADVISOR_JOB.log" 2>&1
      export ADVISOR_PROGRESS=$ADVISOR_RUN/job-$ADVISOR_JOB.progress
    fi
    event "started $ADVISOR_JOB"
    status=0
    ADVISOR_MARK=$mark-$ADVISOR_JOB- setsid "$@" &
    note "job $mark-$ADVISOR_JOB- $! $(born $!)" || :
    wait $! || status=$?
    end_jobs "$mark-$ADVISOR_JOB-" 2 || :
    event "ended $ADVISOR_JOB $status"
    exit "$status"
  ) 9>&- &
  jobs="$jobs $!"
}
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  local status=$?
  set +e
  trap '' INT HUP TERM
  undo && : > "$state" || status=1
  wait
  [ -z "${scratch-}" ] || rm -rf "$scratch"
  event "over $status"
  exit "$status"
}
gpu_id() {
  local id
  id=$(nvidia-smi -i "$GPU" --query-gpu=uuid --format=csv,noheader 2> /dev/null) || id=
  echo "${id:-$GPU}"
}
state=${XDG_STATE_HOME:-$HOME/.local/state}/advisor/gpus/$(uname -n)-$(gpu_id)
mkdir -p "${state%/*}"
exec 9>> "$state"  # locked while this shell lives; its jobs do not hold it
flock -w 2 9 || { echo "GPU $GPU: another script runs jobs there. It wrote $state" >&2; exit 1; }
boot=$(< /proc/sys/kernel/random/boot_id)
grep -qsx "boot $boot" "$state" || : > "$state"
for each in $(left | awk '$1 == "jobs" { print $2 }'); do
  each=$(marked "$each-")
  [ -z "$each" ] || {
    echo "GPU $GPU: jobs of a script that was killed go on, processes" $each "in $state." \
      "Wait for them, or end them: advisor doctor --undo" >&2
    exit 1
  }
done
undo || exit  # what a killed script left
: > "$state"
note "boot $boot"
note "gpu $GPU"
note "script $BASHPID"
[ -z "${ADVISOR_RUN-}" ] || note "run $ADVISOR_RUN"
event "state $state"
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
note "jobs $mark"
NO_MPS=$(mktemp -d /tmp/advisor-none.XXXXXX) && note "folder $NO_MPS" || exit
export CUDA_MPS_PIPE_DIRECTORY="$NO_MPS"  # jobs without MPS find no daemon there
mig_is Enabled 1 || exit
# Instances that are there already: set MIG_1 (3g.71gb), MIG_2 (4g.71gb) to their UUIDs.
if [ -z "${MIG_1-}" ]; then
  mig_clear 4:4 0:4 || exit
  mig_make -C 5:0 9:4 || exit
  MIG_1=$(mig_uuid 9:4) || exit
  MIG_2=$(mig_uuid 5:0) || exit
fi
ADVISOR_JOB=1 CUDA_VISIBLE_DEVICES="$MIG_1" job ./resnet50-imagenet64-bs128.sh
ADVISOR_JOB=2 CUDA_VISIBLE_DEVICES="$MIG_2" job ./bert-base-finetune-bs16-loader2.sh
ended
undo made took || exit
exit "$failed"
