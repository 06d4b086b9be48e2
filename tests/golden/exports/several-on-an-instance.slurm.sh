#!/usr/bin/env bash
# mig=4g.71gb[1]+3g.71gb[2,3]/mps=60,80 on GPU 0 of a node, one h200-141gb. Not run on a cluster.
# Not run on MIG hardware: written from NVIDIA's documentation.
# Before Slurm starts, as root on the node:
#   sudo nvidia-smi -i 0 -mig 1
#   sudo nvidia-smi mig -i 0 -cgi 5:0,9:4 -C
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:4g.71gb:1,gpu:3g.71gb:1
# Put your own command in place of each job's ./NAME.sh.
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --gres=gpu:4g.71gb:1 --cpus-per-task=1 --wrap ./resnet50-imagenet64-bs128.sh)
job_2_3=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2+gpt2-small-pretrain-bs8 --gres=gpu:3g.71gb:1 --cpus-per-task=4 <<'EOF'
#!/bin/bash
MPS_2=$(mktemp -d)
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_LOG_DIRECTORY="$MPS_2" nvidia-cuda-mps-control -d
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35679M ./bert-base-finetune-bs16-loader2.sh &
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35679M ./gpt2-small-pretrain-bs8.sh &
wait
echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_2" nvidia-cuda-mps-control
EOF
)
