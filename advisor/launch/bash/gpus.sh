gpu_of=() next=''  # by the process of its shell; the one whose shell begins
on_gpu() {  # has a shell of its own run plan_$1 on GPU $1, which is in mode $2
  next=$1; (GPU=$1; begin "$2"; "plan_$1"; exit "$failed") & gpu_of[$!]=$1; next=''
}
wait_for_gpus() {  # sends the shells signal $1, 0 for none, until they have ended
  local each
  while [ "${#gpu_of[@]}" -gt 0 ]; do
    for each in "${!gpu_of[@]}"; do
      ! kill "-$1" "$each" 2> /dev/null || continue
      wait "$each" || failed=$?
      [ "$failed" -le 128 ] || (GPU=${gpu_of[each]}; begin mig) || :  # undoes what it left
      unset "gpu_of[each]"
    done
    sleep 0.2
  done
}
stop_gpus() {  # at every end of the script, as `stop`
  local status=${1-$?}; trap '' HUP INT QUIT PIPE TERM; trap - EXIT; set +e
  [ -z "$next" ] || [ -z "${!-}" ] || gpu_of[$!]=${gpu_of[$!]-$next}
  wait_for_gpus 15; exit "$status"
}
trap stop_gpus EXIT; trap 'stop_gpus 129' HUP; trap 'stop_gpus 130' INT
trap 'stop_gpus 131' QUIT; trap 'stop_gpus 143' TERM
