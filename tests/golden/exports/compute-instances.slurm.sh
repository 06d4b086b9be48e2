#!/usr/bin/env bash
# mig=7g.141gb/ci=3c[1]+4c[2] on GPU 0 of a node, one h200-141gb. Not run on a cluster.
# Not run on MIG hardware: written from NVIDIA's documentation.
# Before Slurm starts, as root on the node:
#   sudo nvidia-smi -i 0 -mig 1
#   sudo nvidia-smi mig -i 0 -cgi 0:0
#   nvidia-smi mig -i 0 -lgi  # IDs of the GPU instances; a script stops below likewise
#   : "${GI_1:?set it to the ID of 7g.141gb@0}"
#   sudo nvidia-smi mig -i 0 -cci 4c.7g.141gb,3c.7g.141gb -gi "$GI_1"
# gres.conf of the node:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:3c.7g.141gb:1,gpu:4c.7g.141gb:1
# Put your own command in place of each job's ./NAME.sh.
job_1=$(sbatch --parsable --job-name resnet50-imagenet64-bs128 --gres=gpu:3c.7g.141gb:1 --cpus-per-task=1 --wrap ./resnet50-imagenet64-bs128.sh)
job_2=$(sbatch --parsable --job-name bert-base-finetune-bs16-loader2 --gres=gpu:4c.7g.141gb:1 --cpus-per-task=3 --wrap ./bert-base-finetune-bs16-loader2.sh)
