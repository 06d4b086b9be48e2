#!/usr/bin/env bash
# MPS for mps on one h200-141gb.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
set -euo pipefail
unset "${!CUDA_MPS_@}"
GPU=${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them
export CUDA_DEVICE_ORDER=PCI_BUS_ID
FIRST_CORE=${FIRST_CORE:-0}  # of the jobs; other scripts beside them: others
cores() {  # numbers $1 to $2 of the cores that this shell may use, from FIRST_CORE on, then again
  # Where Slurm gives cores and does not bind to them, these would be everybody's: all, then.
  awk -v first=$((FIRST_CORE + $1)) -v last=$((FIRST_CORE + $2)) \
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
folder=${XDG_RUNTIME_DIR:-/tmp/advisor-$UID}/advisor-mps
MPS_1=$folder/1
mps_answers() { echo get_server_list | nvidia-cuda-mps-control > /dev/null 2>&1; }
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
  local said servers='' silent=0
  for _ in $(seq 100); do
    if said=$(echo get_server_list | nvidia-cuda-mps-control 2> /dev/null); then
      servers=${said:-$servers} silent=0
      echo quit | nvidia-cuda-mps-control > /dev/null 2>&1 || :
    else
      # shellcheck disable=SC2086
      [ $((silent += 1)) -lt 2 ] || kill -0 $servers 2> /dev/null || return 0
    fi
    sleep 0.1
  done
  echo "MPS does not end. Its log: $CUDA_MPS_PIPE_DIRECTORY" >&2
  return 1
}
stop() {
  CUDA_MPS_PIPE_DIRECTORY="$MPS_1" mps_stop
}
usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }
case ${1:-} in
start)
  mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current --format=csv,noheader 2> /dev/null) || :
  [ "$mode" != Enabled ] || {
    echo "GPU $GPU is in MIG mode: jobs planned for all of it would share its first instance. While" \
      "nothing runs there: sudo nvidia-smi -i $GPU -mig 0. Or choose a plan of MIG instances" >&2
    exit 1
  }
  ! CUDA_MPS_PIPE_DIRECTORY="$MPS_1" mps_answers || { echo "MPS runs already, in $MPS_1: bash $0 stop" >&2; exit 1; }
  mkdir -p "$MPS_1"
  CUDA_VISIBLE_DEVICES="$GPU" CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_LOG_DIRECTORY="$MPS_1" mps_start || { stop; exit 1; }
  ;;
stop)
  stop
  ;;
run)
  [ $# -gt 2 ] || usage
  job=$2
  shift 2
  case $job in
  1)  # resnet50-imagenet64-bs128
    CUDA_MPS_PIPE_DIRECTORY="$MPS_1" mps_answers || { echo "MPS is off: bash $0 start" >&2; exit 1; }
    exec env ADVISOR_JOB=1 CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" taskset -c "$(cores 0 0)" "$@" ;;
  2)  # bert-base-finetune-bs16-loader2
    CUDA_MPS_PIPE_DIRECTORY="$MPS_1" mps_answers || { echo "MPS is off: bash $0 start" >&2; exit 1; }
    exec env ADVISOR_JOB=2 CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" taskset -c "$(cores 1 3)" "$@" ;;
  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;
  esac
  ;;
*) usage ;;
esac
