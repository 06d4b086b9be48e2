#!/usr/bin/env bash
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB tells it its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
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
jobs='' failed=0 NO_MPS=''
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  set +e
  trap '' INT HUP TERM
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
  rm -rf "$NO_MPS"
}
GPU=${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them
export CUDA_DEVICE_ORDER=PCI_BUS_ID
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
NO_MPS=$(mktemp -d) || exit
export CUDA_MPS_PIPE_DIRECTORY="$NO_MPS"  # jobs without MPS find no daemon there
mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current --format=csv,noheader 2> /dev/null) || :
[ "$mode" != Enabled ] || {
  echo "GPU $GPU is in MIG mode: jobs planned for all of it would share its first instance. While" \
    "nothing runs there: sudo nvidia-smi -i $GPU -mig 0. Or choose a plan of MIG instances" >&2
  exit 1
}
ADVISOR_JOB=1 CUDA_VISIBLE_DEVICES="$GPU" job taskset -c "$(cores 0 0)" ./resnet50-imagenet64-bs128.sh
ended
ADVISOR_JOB=2 CUDA_VISIBLE_DEVICES="$GPU" job taskset -c "$(cores 0 2)" ./bert-base-finetune-bs16-loader2.sh
ended
exit "$failed"
