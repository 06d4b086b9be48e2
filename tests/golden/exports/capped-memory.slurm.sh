#!/usr/bin/env bash
# mps=50,50 on GPU 0 of a node, one h200-141gb. Not run on a cluster.
# gres.conf of the node:
#   AutoDetect=nvml
#   Name=mps Count=100 File=/dev/nvidia0
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu,mps
#   NodeName=NODE Gres=gpu:1,mps:100
# Put your own command in place of each job's ./NAME.sh.
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --gres=mps:50 --cpus-per-task=1 --wrap 'env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=71545M ./resnet50-imagenet64-bs128.sh')
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --gres=mps:50 --cpus-per-task=3 --wrap 'env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=71545M ./bert-base-finetune-bs16-loader2.sh')
