#!/usr/bin/env bash
# mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3] on GPU 0 of a node, one h200-141gb.
# Untested: this script has not run on a cluster yet.
# Untested on MIG hardware: written from NVIDIA's documentation.
# Before Slurm starts, as root on the node:
#   sudo nvidia-smi -i 0 -mig 1
#   sudo nvidia-smi mig -i 0 -cgi 9:4 -C
#   sudo nvidia-smi mig -i 0 -cgi 5:0
#   sudo nvidia-smi mig -i 0 -cci 2c.4g.71gb,2c.4g.71gb -gi ID  # which the line before said
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:4g.70gb:2,gpu:3g.70gb:1
# Keep what else that line lists: other GPUs of the node are lost without it.
# `sudo slurmd -G` on the node lists the types that Slurm makes of slices and GiB, which
# differ between drivers and releases: one that is not among them drains the node.
# Jobs under MPS start its daemon and stop it again: do not start one on the node.
# --time is the upper end of what is predicted, rounded up; a job is ended then. Add --mem=...: how
# much host memory a job takes is not known.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB tells it its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --output=%x-%j.log --gres=gpu:4g.70gb:1 --cpus-per-task=1 --time=180 --wrap 'NO_MPS=$(mktemp -d) && CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" ADVISOR_JOB=1 ./resnet50-imagenet64-bs128.sh; failed=$?; rm -rf "$NO_MPS"; exit "$failed"')
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --output=%x-%j.log --gres=gpu:4g.70gb:1 --cpus-per-task=3 --time=75 <<'EOF'
#!/bin/bash
set -euo pipefail
unset "${!CUDA_MPS_@}"
FIRST_CORE=0
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
jobs='' failed=0 MPS_2=''
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  set +e
  trap '' INT HUP TERM
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
  [ -z "$MPS_2" ] || { CUDA_MPS_PIPE_DIRECTORY="$MPS_2" mps_stop && rm -rf "$MPS_2"; }
}
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
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
MPS_2=$(mktemp -d /tmp/mps.XXXXXX) || exit
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_LOG_DIRECTORY="$MPS_2" mps_start || exit
ADVISOR_JOB=2 CUDA_MPS_PIPE_DIRECTORY="$MPS_2" job taskset -c "$(cores 0 2)" ./bert-base-finetune-bs16-loader2.sh
ended
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" mps_stop
rm -rf "$MPS_2" || :
MPS_2=''
exit "$failed"
EOF
)
job_3=$(sbatch --parsable --job-name gpt2-small-pretrain-bs8 --output=%x-%j.log --gres=gpu:3g.70gb:1 --cpus-per-task=1 --time=225 --wrap 'NO_MPS=$(mktemp -d) && CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" ADVISOR_JOB=3 ./gpt2-small-pretrain-bs8.sh; failed=$?; rm -rf "$NO_MPS"; exit "$failed"')
