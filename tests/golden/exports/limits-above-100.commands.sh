#!/usr/bin/env bash
# Put your own command in place of each job's ./NAME.sh.
MPS_1=$(mktemp -d)
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_LOG_DIRECTORY="$MPS_1" nvidia-cuda-mps-control -d
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 taskset -c 0 ./resnet50-imagenet64-bs128.sh &
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh &
wait
echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_1" nvidia-cuda-mps-control
