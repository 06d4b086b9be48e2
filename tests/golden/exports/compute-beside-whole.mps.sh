#!/usr/bin/env bash
# MPS for mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3] on GPU 0, one h200-141gb.
#   bash FILE start            starts the daemons
#   bash FILE run JOB COMMAND  runs COMMAND as the job of that number, with its limits and cores
#   bash FILE stop             ends the daemons; the jobs must have ended
# Not run on MIG hardware: written from NVIDIA's documentation.
set -eu
: "${MIG_2:?set it to the UUID of 2c in 4g.71gb@0: nvidia-smi -L}"
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
    exec env CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" taskset -c 1-3 "$@" ;;
  *) echo "no job of this plan under MPS: $job" >&2; exit 2 ;;
  esac
  ;;
*) usage ;;
esac
