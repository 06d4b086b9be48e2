#!/usr/bin/env bash
# Not run on MIG hardware: written from NVIDIA's documentation. Nothing else may run on the GPU.
# Put your own command in place of each job's ./NAME.sh.
jobs= failed=0
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
sudo nvidia-smi -i 0 -mig 1
sudo nvidia-smi mig -i 0 -cgi 0:0
nvidia-smi mig -i 0 -lgi  # IDs of the GPU instances; a script stops below too
: "${GI_1:?set it to the ID of 7g.141gb@0}"
sudo nvidia-smi mig -i 0 -cci 4c.7g.141gb,3c.7g.141gb -gi "$GI_1"
nvidia-smi -L  # UUIDs of the MIG devices; a script stops below until they are set
: "${MIG_1:?set it to the UUID of 3c in 7g.141gb@0, for job 1}"
: "${MIG_2:?set it to the UUID of 4c in 7g.141gb@0, for job 2}"
CUDA_VISIBLE_DEVICES="$MIG_1" job taskset -c 0 ./resnet50-imagenet64-bs128.sh
CUDA_VISIBLE_DEVICES="$MIG_2" job taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh
ended
sudo nvidia-smi mig -i 0 -dci && sudo nvidia-smi mig -i 0 -dgi
sudo nvidia-smi -i 0 -mig 0
exit "$failed"
