#!/usr/bin/env bash
# Put your own command in place of each job's ./NAME.sh.
CUDA_VISIBLE_DEVICES=0 taskset -c 0 ./resnet50-imagenet64-bs128.sh &
CUDA_VISIBLE_DEVICES=0 taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh &
wait
