#!/usr/bin/env bash
# Not run on MIG hardware: written from NVIDIA's documentation. Nothing else may run on the GPU.
# Put your own command in place of each job's ./NAME.sh.
jobs= failed=0 MPS_2=
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
  [ -z "$MPS_2" ] || CUDA_MPS_PIPE_DIRECTORY="$MPS_2" mps_stop
}
unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PINNED_DEVICE_MEM_LIMIT CUDA_MPS_CLIENT_PRIORITY
mps_answers() { echo get_server_list | nvidia-cuda-mps-control > /dev/null 2>&1; }
mps_start() {  # fails where the daemon does not answer: CUDA would run without MPS
  nvidia-cuda-mps-control -d && for try in $(seq 50); do
    mps_answers && return
    sleep 0.1
  done
  echo "MPS does not start. Its log: $CUDA_MPS_LOG_DIRECTORY" >&2
  return 1
}
mps_stop() { ! mps_answers || echo quit | nvidia-cuda-mps-control; }
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
sudo nvidia-smi -i 0 -mig 1
sudo nvidia-smi mig -i 0 -cgi 9:4 -C
sudo nvidia-smi mig -i 0 -cgi 5:0
nvidia-smi mig -i 0 -lgi  # IDs of the GPU instances; a script stops below too
: "${GI_1:?set it to the ID of 4g.71gb@0}"
sudo nvidia-smi mig -i 0 -cci 2c.4g.71gb,2c.4g.71gb -gi "$GI_1"
nvidia-smi -L  # UUIDs of the MIG devices; a script stops below until they are set
: "${MIG_1:?set it to the UUID of 2c in 4g.71gb@0, for job 1}"
: "${MIG_2:?set it to the UUID of 2c in 4g.71gb@0, for job 2}"
: "${MIG_3:?set it to the UUID of 3g.71gb@4, for job 3}"
MPS_2=$(mktemp -d /tmp/mps.XXXXXX) || exit
CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" CUDA_MPS_LOG_DIRECTORY="$MPS_2" mps_start || exit
CUDA_VISIBLE_DEVICES="$MIG_1" job taskset -c 0 ./resnet50-imagenet64-bs128.sh
CUDA_VISIBLE_DEVICES="$MIG_2" CUDA_MPS_PIPE_DIRECTORY="$MPS_2" job taskset -c 1-3 ./bert-base-finetune-bs16-loader2.sh
CUDA_VISIBLE_DEVICES="$MIG_3" job taskset -c 4 ./gpt2-small-pretrain-bs8.sh
ended
CUDA_MPS_PIPE_DIRECTORY="$MPS_2" mps_stop
MPS_2=
sudo nvidia-smi mig -i 0 -dci && sudo nvidia-smi mig -i 0 -dgi
sudo nvidia-smi -i 0 -mig 0
exit "$failed"
