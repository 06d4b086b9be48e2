#!/usr/bin/env bash
# mig=3g.71gb,4g.71gb@0 on a GPU of a node, one h200-141gb.
# Tested with Slurm 22.05 on one node without a GPU; not yet on a cluster.
# Untested on MIG hardware: written from NVIDIA's documentation.
# Before Slurm starts, as root on the node:
#   sudo nvidia-smi -i 0 -mig 1
#   sudo nvidia-smi mig -i 0 -cgi 5:0,9:4 -C
# gres.conf of the nodes:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:3g.70gb:1,gpu:4g.70gb:1
# Keep what else that line lists: other GPUs of the node are lost without it.
# `sudo slurmd -G` on the node lists Slurm's types, slices and GiB, which vary between
# drivers and releases, and any other type drains the node.
# --time is twice the upper end of the predicted time; Slurm ends a job then.
# sbatch reads further options from SBATCH_PARTITION, SBATCH_ACCOUNT, ... in the environment.
# Set SBATCH_MEM_PER_NODE: profiles lack host memory: resnet50-imagenet64-bs128, bert-base-finetune-bs16-loader2.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"  # limits and daemon that the environment of sbatch names
# Slurm kills a job 30 s after it asks it to end: what the job changed is undone before that.
export ADVISOR_GRACE_S=${ADVISOR_GRACE_S:-10}
declare -A id=()
ids=()
submit() {  # a job with the script on stdin, called $1; its ID becomes id[$1]
  local new
  new=$(sbatch --parsable --output=%x-%j.log --job-name="$1" "${@:2}") ||
    { [ ${#ids[@]} = 0 ] || scancel "${ids[@]}"; exit 1; }
  ids+=("${new%%;*}") id[$1]=${new%%;*}
}
submit gpu_0_1 --job-name=resnet50-imagenet64-bs128 --gres=gpu:3g.70gb:1 --cpus-per-task=1 --time=345 <<'END'
#!/bin/sh
CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=1 ./resnet50-imagenet64-bs128.sh
END
submit gpu_0_2 --job-name=bert-base-finetune-bs16-loader2 --gres=gpu:4g.70gb:1 --cpus-per-task=3 --time=150 <<'END'
#!/bin/sh
CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=2 ./bert-base-finetune-bs16-loader2.sh
END
echo "Submitted: ${ids[*]}"
