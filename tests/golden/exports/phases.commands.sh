#!/usr/bin/env bash
# Put your own command in place of each job's ./NAME.sh.
# Group 1 of 2: job 1, 2.
MPS_1=$(mktemp -d)
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_LOG_DIRECTORY="$MPS_1" nvidia-cuda-mps-control -d
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=43 taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh &
CUDA_VISIBLE_DEVICES=0 CUDA_MPS_PIPE_DIRECTORY="$MPS_1" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=57 taskset -c 0 ./resnet50-imagenet64-bs128.sh &
wait
echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_1" nvidia-cuda-mps-control
# Group 2 of 2: job 3.
CUDA_VISIBLE_DEVICES=0 taskset -c 0 ./gpt2-small-pretrain-bs8.sh &
wait
