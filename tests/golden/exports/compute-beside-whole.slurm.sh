#!/usr/bin/env bash
# mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3] on GPU 0 of a node, one h200-141gb. Not run on a cluster.
# Not run on MIG hardware: written from NVIDIA's documentation.
# Before Slurm starts, as root on the node:
#   sudo nvidia-smi -i 0 -mig 1
#   sudo nvidia-smi mig -i 0 -cgi 9:4 -C
#   sudo nvidia-smi mig -i 0 -cgi 5:0
#   nvidia-smi mig -i 0 -lgi  # IDs of the GPU instances; a script stops below likewise
#   : "${GI_1:?set it to the ID of 4g.71gb@0}"
#   sudo nvidia-smi mig -i 0 -cci 2c.4g.71gb,2c.4g.71gb -gi "$GI_1"
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:2c.4g.71gb:2,gpu:3g.71gb:1
# Put your own command in place of each job's ./NAME.sh.
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --gres=gpu:2c.4g.71gb:1 --cpus-per-task=1 --wrap ./resnet50-imagenet64-bs128.sh)
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --gres=gpu:2c.4g.71gb:1 --cpus-per-task=3 <<'EOF'
#!/bin/bash
MPS_2=$(mktemp -d)
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_LOG_DIRECTORY="$MPS_2" nvidia-cuda-mps-control -d
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" ./bert-base-finetune-bs16-loader2.sh &
wait
echo quit | CUDA_MPS_PIPE_DIRECTORY="$MPS_2" nvidia-cuda-mps-control
EOF
)
job_3=$(sbatch --parsable --job-name gpt2-small-pretrain-bs8 --gres=gpu:3g.71gb:1 --cpus-per-task=1 --wrap ./gpt2-small-pretrain-bs8.sh)
