#!/usr/bin/env bash
# Not run on MIG hardware: written from NVIDIA's documentation. Nothing else may run on the GPU.
# Put your own command in place of each job's ./NAME.sh.
sudo nvidia-smi -i 0 -mig 1
sudo nvidia-smi mig -i 0 -cgi 5:0,9:4 -C
nvidia-smi -L  # UUIDs of the MIG devices; a script stops below until they are set
: "${MIG_1:?set it to the UUID of 4g.71gb@0, for job 1}"
: "${MIG_2:?set it to the UUID of 3g.71gb@4, for job 2, 3}"
MPS_2=$(mktemp -d)
CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_LOG_DIRECTORY="$MPS_2" nvidia-cuda-mps-control -d
CUDA_VISIBLE_DEVICES="$MIG_1" taskset -c 0 ./resnet50-imagenet64-bs128.sh &
CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35679M taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh &
CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=35679M taskset -c 4 ./gpt2-small-pretrain-bs8.sh &
wait
echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_2" nvidia-cuda-mps-control
sudo nvidia-smi mig -i 0 -dci && sudo nvidia-smi mig -i 0 -dgi
sudo nvidia-smi -i 0 -mig 0
