stop_job() {  # asks job $1 to end; after $2 seconds kills it
  local n undo pipes server pid mine=$mark-$1-
  mapfile -t groups < <(job_groups "$mine")
  kill -15 -- "${groups[@]}" 2> /dev/null || :
  for ((n = 0; n < $2 * 5; n++)); do
    [ -n "$(job_groups "$mine")" ] || return 0
    sleep 0.2
  done
  # A client that is killed at work can take the others with it (NVIDIA's MPS documentation,
  # terminate_client).
  for undo in "${undos[@]}"; do
    pipes=${undo#mps_stop }
    [ "$pipes" != "$undo" ] || continue
    export CUDA_MPS_PIPE_DIRECTORY=$pipes
    for server in $(echo get_server_list | timeout 5 nvidia-cuda-mps-control); do
      for pid in $(grep -lsz "^ADVISOR_MARK=$mine" /proc/[0-9]*/environ | cut -d / -f 3); do
        echo "terminate_client $server $pid" | timeout 5 nvidia-cuda-mps-control
      done
    done
  done > /dev/null 2>&1
  end_jobs "$mine" 0
}
