use_loader() {  # starts the data loader of the next $1 jobs, which each run command $2...
  loader=/tmp/advisor-loader-$UID-$uuid
  [ ! -e "$loader" ] || [ -O "$loader" ] || fail "$loader is not ours. Remove it."
  undo_by rm -rf "$loader"; rm -rf "$loader"; mkdir -m 700 "$loader"
  (  # its jobs look whether it has ended
    [ -z "$run" ] || exec > "$run/loader.log" 2>&1
    ADVISOR_MARK=$mark-loader- ADVISOR_LOADER=$loader ADVISOR_LOADER_JOBS=$1 \
      CUDA_VISIBLE_DEVICES=$device CUDA_MPS_PIPE_DIRECTORY=$pipes \
      setsid bash -c 'trap : TERM; "$@"; exit $?' loader "${@:2}" || :
    : > "$loader/ended" || :
  ) 9>&- &
}
