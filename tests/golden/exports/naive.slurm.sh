#!/usr/bin/env bash
# naive on GPU 0 of a node, one h200-141gb.
# Untested: this script has not run on a cluster yet.
# gres.conf of the node:
#   AutoDetect=nvml
#   Name=shard Count=2 File=/dev/nvidia0
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu,shard
#   NodeName=NODE Gres=gpu:N,shard:2
# N: all GPUs that the node has. Keep what else that line lists: other GPUs of the node are lost without it.
# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU.
# --time is the upper end of what is predicted, rounded up; a job is ended then. Add --mem=...: how
# much host memory a job takes is not known.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB tells it its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --output=%x-%j.log --gres=shard:1 --cpus-per-task=1 --time=180 --wrap 'NO_MPS=$(mktemp -d) && CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" ADVISOR_JOB=1 ./resnet50-imagenet64-bs128.sh; failed=$?; rm -rf "$NO_MPS"; exit "$failed"')
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --output=%x-%j.log --gres=shard:1 --cpus-per-task=3 --time=75 --wrap 'NO_MPS=$(mktemp -d) && CUDA_MPS_PIPE_DIRECTORY="$NO_MPS" ADVISOR_JOB=2 ./bert-base-finetune-bs16-loader2.sh; failed=$?; rm -rf "$NO_MPS"; exit "$failed"')
