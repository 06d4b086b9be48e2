#!/usr/bin/env bash
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB tells it its number.
set -euo pipefail
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
jobs='' failed=0
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  set +e
  trap '' INT HUP TERM
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
ADVISOR_JOB=1 CUDA_VISIBLE_DEVICES=0 job taskset -c "$(cores 0 0)" ./resnet50-imagenet64-bs128.sh
ADVISOR_JOB=2 CUDA_VISIBLE_DEVICES=0 job taskset -c "$(cores 1 3)" ./bert-base-finetune-bs16-loader2.sh
ended
exit "$failed"
