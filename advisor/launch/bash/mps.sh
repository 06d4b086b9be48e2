mps() { echo "$1" | CUDA_MPS_PIPE_DIRECTORY=$2 timeout 5 nvidia-cuda-mps-control > /dev/null 2>&1; }
mps_stop() {  # ends the daemon of folder $1 and its servers, which hold the GPU
  for _ in 1 2 3; do mps quit "$1" || :; done
  end_jobs "mps-$1" 10 && ! mps get_server_list "$1" && rm -rf "$1"
}
use_mps() {  # has the next jobs run on device $1 under an MPS daemon of their own, number $2
  device=${1:-$client} pipes=/tmp/advisor-mps-$UID-$uuid-$2
  [ ! -e "$pipes" ] || [ -O "$pipes" ] || fail "$pipes is not ours. Remove it."
  undo_by mps_stop "$pipes"; [ -O "$pipes" ] || mkdir -m 700 "$pipes"
  ADVISOR_MARK=mps-$pipes CUDA_VISIBLE_DEVICES=${1:-$uuid} CUDA_MPS_PIPE_DIRECTORY=$pipes \
    CUDA_MPS_LOG_DIRECTORY=$pipes timeout 10 nvidia-cuda-mps-control -d 9>&- && for _ in {1..50}; do
    ! mps get_server_list "$pipes" || return 0  # CUDA runs without a daemon, too
    sleep 0.1
  done
  fail "MPS does not start. $(cat "$pipes"/*.log 2> /dev/null | tail -n 5)"
}
