#!/usr/bin/env bash
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
GPU=${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them
export CUDA_DEVICE_ORDER=PCI_BUS_ID
CLIENT=0  # a client of MPS counts the GPUs of its daemon, which sees one
case $GPU in MIG-*) CLIENT=$GPU ;; esac
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
mps_answers() { echo get_server_list | timeout 10 nvidia-cuda-mps-control > /dev/null 2>&1; }
mps_start() {  # fails where the daemon does not answer: CUDA would run without MPS
  nvidia-cuda-mps-control -d 9>&- && for _ in $(seq 50); do
    mps_answers && return
    sleep 0.1
  done
  echo "MPS does not start. The end of its log:" >&2
  tail -qn 9 "$CUDA_MPS_LOG_DIRECTORY"/*.log >&2 2> /dev/null || :
  return 1
}
mps_stop() {  # asks again and again, and waits for its servers too, which hold the GPU
  local said pid servers='' silent=0 until=$((SECONDS + 30))
  for _ in $(seq 100); do
    [ "$SECONDS" -lt "$until" ] || break
    if said=$(echo get_server_list | timeout 10 nvidia-cuda-mps-control 2> /dev/null); then
      servers=${said:-$servers} silent=0
      echo quit | timeout 10 nvidia-cuda-mps-control > /dev/null 2>&1 || :
    else
      # shellcheck disable=SC2086
      [ $((silent += 1)) -lt 2 ] || kill -0 $servers 2> /dev/null || return 0
    fi
    sleep 0.1
  done
  # A server whose clients were killed may answer nothing: it and its daemon are killed, too.
  for pid in $(grep -lszxF "CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY" \
    /proc/[0-9]*/environ | cut -d / -f 3); do
    case $(cat "/proc/$pid/comm") in nvidia-cuda-mps*) kill -s KILL "$pid" || : ;; esac
  done 2> /dev/null
  sleep 1
  mps_answers || return 0
  echo "MPS does not end. Its log: $CUDA_MPS_PIPE_DIRECTORY" >&2
  return 1
}
mps_release() {  # has the MPS servers let go of these processes before they are killed
  local word pipes server each
  while read -r word pipes; do
    [ "$word" = mps ] || continue
    for server in $(echo get_server_list | CUDA_MPS_PIPE_DIRECTORY=$pipes timeout 10 nvidia-cuda-mps-control)
    do
      for each in "$@"; do
        echo "terminate_client $server $each" | CUDA_MPS_PIPE_DIRECTORY=$pipes timeout 10 nvidia-cuda-mps-control
      done
    done > /dev/null 2>&1
  done < <(left) 2> /dev/null
}
undo() {  # undoes the lines of the state file of these kinds, or all, the last first
  local line rest bad=0 kinds=" $* "
  while IFS= read -r line <&8; do
    [ "$kinds" = "  " ] || [[ $kinds == *" ${line%% *} "* ]] || continue
    rest=${line#* }
    case ${line%% *} in
    boot | gpu | script | run | job) continue ;;
    jobs) end_jobs "$rest-" "${ADVISOR_GRACE_S:-30}" ;;
    folder) case $rest in *advisor-*) rm -rf "$rest" ;; esac ;;
    mps) CUDA_MPS_PIPE_DIRECTORY=$rest mps_stop && case $rest in *advisor-*) rm -rf "$rest" ;; esac ;;
    *) false ;;
    esac && note "undone $line" || {
      echo "not undone: $line, in $state. Try again: advisor doctor --undo" >&2
      bad=1
    }
  done 8< <(left)
  return $bad
}
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
mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current --format=csv,noheader 2> /dev/null) || :
[ "$mode" != Enabled ] || {
  echo "GPU $GPU is in MIG mode: jobs planned for all of it would share its first instance. While" \
    "nothing runs there: sudo nvidia-smi -i $GPU -mig 0. Or choose a plan of MIG instances" >&2
  exit 1
}
MPS_1=$(mktemp -d /tmp/advisor-mps.XXXXXX) && note "mps $MPS_1" || exit
CUDA_VISIBLE_DEVICES="$GPU" CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_LOG_DIRECTORY="$MPS_1" mps_start || exit
ADVISOR_JOB=1 CUDA_VISIBLE_DEVICES=$CLIENT CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=43 job ./resnet50-imagenet64-bs128.sh
ADVISOR_JOB=2 CUDA_VISIBLE_DEVICES=$CLIENT CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=57.5 job ./bert-base-finetune-bs16-loader2.sh
ended
undo mps || exit
exit "$failed"
