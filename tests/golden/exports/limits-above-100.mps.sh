#!/usr/bin/env bash
# MPS for mps=80,70 on GPU 0, one h200-141gb.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
set -eu
folder=${XDG_RUNTIME_DIR:-/tmp/advisor-$UID}/advisor-mps
MPS_1=$folder/1
usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }
case ${1:-} in
start)
  mkdir -p "$MPS_1"
  CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_LOG_DIRECTORY="$MPS_1" nvidia-cuda-mps-control -d
  ;;
stop)
  echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_1" nvidia-cuda-mps-control
  ;;
run)
  [ $# -gt 2 ] || usage
  job=$2
  shift 2
  case $job in
  1)  # resnet50-imagenet64-bs128
    exec env CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 taskset -c 0 "$@" ;;
  2)  # bert-base-finetune-bs16-loader2
    exec env CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 taskset -c 1-3 "$@" ;;
  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;
  esac
  ;;
*) usage ;;
esac
