#!/usr/bin/env bash
# mps=43,57.5 on GPU 0 of a node, one h200-141gb.
# Untested: this script has not run on a cluster yet.
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:1
# Jobs under MPS start its daemon and stop it again: do not start one on the node.
# Put your own command in place of each job's ./NAME.sh.
set -euo pipefail
job_1_2=$(sbatch --parsable --job-name resnet50-imagenet64-bs128+bert-base-finetune-bs16-loader2 --gres=gpu:1 --cpus-per-task=4 <<'EOF'
#!/bin/bash
set -euo pipefail
jobs='' failed=0 MPS_1=''
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  set +e
  trap '' INT HUP TERM
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
  [ -z "$MPS_1" ] || CUDA_MPS_PIPE_DIRECTORY="$MPS_1" mps_stop
}
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT CUDA_MPS_CLIENT_PRIORITY
mps_answers() { echo get_server_list | nvidia-cuda-mps-control > /dev/null 2>&1; }
mps_start() {  # fails where the daemon does not answer: CUDA would run without MPS
  nvidia-cuda-mps-control -d 9>&- && for _ in $(seq 50); do
    mps_answers && return
    sleep 0.1
  done
  echo "MPS does not start. Its log: $CUDA_MPS_LOG_DIRECTORY" >&2
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
MPS_1=$(mktemp -d /tmp/mps.XXXXXX) || exit
CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_LOG_DIRECTORY="$MPS_1" mps_start || exit
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=43 job ./resnet50-imagenet64-bs128.sh
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=57.5 job ./bert-base-finetune-bs16-loader2.sh
ended
CUDA_MPS_PIPE_DIRECTORY="$MPS_1" mps_stop
MPS_1=''
exit "$failed"
EOF
)
