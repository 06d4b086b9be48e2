#!/usr/bin/env bash
sudo nvidia-smi -i 0 --power-limit=350
# Put your own command in place of each job's ./NAME.sh.
CUDA_VISIBLE_DEVICES=0 taskset -c 0 ./resnet50-imagenet64-bs128.sh &
CUDA_VISIBLE_DEVICES=0 taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh &
wait
sudo nvidia-smi -i 0 --power-limit=700  # the GPU's own limit
