#!/usr/bin/env bash
# mps=43,57[2,1];naive[3] on GPU 0 of a node, one h200-141gb. Not run on a cluster.
# gres.conf of the node:
#   AutoDetect=nvml
#   Name=mps Count=100 File=/dev/nvidia0
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu,mps
#   NodeName=NODE Gres=gpu:1,mps:100
# Put your own command in place of each job's ./NAME.sh.
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --gres=mps:43 --cpus-per-task=3 --wrap 'env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=43 ./bert-base-finetune-bs16-loader2.sh')
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --gres=mps:57 --cpus-per-task=1 --wrap 'env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=57 ./resnet50-imagenet64-bs128.sh')
job_3=$(sbatch --parsable --dependency=afterany:$job_2:$job_1 --job-name gpt2-small-pretrain-bs8 --gres=gpu:1 --cpus-per-task=1 --wrap ./gpt2-small-pretrain-bs8.sh)
