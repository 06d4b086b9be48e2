#!/usr/bin/env bash
# mig=3g.71gb,4g.71gb@0 on a GPU of a node, one h200-141gb.
# Tested with Slurm 22.05 on one node without a GPU; not yet on a cluster.
# Untested on MIG hardware: written from NVIDIA's documentation.
# Before Slurm starts, as root on the node:
#   sudo nvidia-smi -i 0 -mig 1
#   sudo nvidia-smi mig -i 0 -cgi 5:0,9:4 -C
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:3g.70gb:1,gpu:4g.70gb:1
# Keep what else that line lists: other GPUs of the node are lost without it.
# `sudo slurmd -G` on the node lists Slurm's types, slices and GiB, which vary between
# drivers and releases, and any other type drains the node.
# --time is twice the upper end of the predicted time; Slurm ends a job then. Add --mem=...:
# advisor does not predict host memory.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
# Slurm kills a job 30 s after it asks it to end: what the job changed is undone before that.
export ADVISOR_GRACE_S=${ADVISOR_GRACE_S:-10}
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --output=%x-%j.log --gres=gpu:3g.70gb:1 --cpus-per-task=1 --time=345 --wrap 'CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=1 ./resnet50-imagenet64-bs128.sh')
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --output=%x-%j.log --gres=gpu:4g.70gb:1 --cpus-per-task=3 --time=150 --wrap 'CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=2 ./bert-base-finetune-bs16-loader2.sh')
echo "Submitted: $job_1 $job_2"
