#!/usr/bin/env bash
# serial on GPU 0 of a node, one h200-141gb.
# Untested: this script has not run on a cluster yet.
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:1
# Put your own command in place of each job's ./NAME.sh.
set -euo pipefail
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --gres=gpu:1 --cpus-per-task=1 --wrap ./resnet50-imagenet64-bs128.sh)
job_2=$(sbatch --parsable --dependency=afterany:$job_1 --job-name bert-base-finetune-bs16-loader2 --gres=gpu:1 --cpus-per-task=3 --wrap ./bert-base-finetune-bs16-loader2.sh)
