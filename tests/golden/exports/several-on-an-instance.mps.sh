#!/usr/bin/env bash
# MPS for mig=4g.71gb[1]+3g.71gb[2,3]/mps=60,80 on GPU 0, one h200-141gb.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
# Not run on MIG hardware: written from NVIDIA's documentation.
set -eu
: "${MIG_2:?set it to the UUID of 3g.71gb@4: nvidia-smi -L}"
folder=${XDG_RUNTIME_DIR:-/tmp/advisor-$UID}/advisor-mps
MPS_2=$folder/2
usage() { echo "usage: $0 start | run JOB COMMAND... | stop" >&2; exit 2; }
case ${1:-} in
start)
  mkdir -p "$MPS_2"
  CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_LOG_DIRECTORY="$MPS_2" nvidia-cuda-mps-control -d
  ;;
stop)
  echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_2" nvidia-cuda-mps-control
  ;;
run)
  [ $# -gt 2 ] || usage
  job=$2
  shift 2
  case $job in
  2)  # bert-base-finetune-bs16-loader2
    exec env CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35679M taskset -c 1-3 "$@" ;;
  3)  # gpt2-small-pretrain-bs8
    exec env CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35679M taskset -c 4 "$@" ;;
  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;
  esac
  ;;
*) usage ;;
esac
