event() { [ -z "$run" ] || echo "$* $(cut -d ' ' -f 1 /proc/uptime)" >> "$run/events"; }
undo_by() { printf 'undos[%d]=%q\n' "${#undos[@]}" "$*" >> "$state" && undos+=("$*"); }
undo() {  # ends all jobs, then undoes the changes from the last to number $1
  local n bad=0; end_jobs "$mark-" || bad=1
  for ((n = ${#undos[@]} - 1; n >= $1; n--)); do
    if ${undos[n]} || ${undos[n]}; then undos[n]=:; echo "undos[$n]=:" >> "$state"; else bad=1; fi
  done || :  # a full disk hinders no undoing
  [ "$bad" = 0 ] || { echo "Not all is undone, the next run tries again: $state" >&2; return 1; }
}
stop() {  # at every end of the script, with status $1 at a signal; further signals change nothing
  local status=${1-$?} left; trap '' HUP INT QUIT PIPE TERM; trap - EXIT; set +e
  # Again and again: a job that only begins has no mark yet. Bash may list some that have ended.
  while mapfile -t left < <(jobs -pr); kill -0 "${left[@]}" 2> /dev/null && end_jobs "$mark-"
  do sleep 0.1; done
  undo 0 && rm -f "$state" || status=1; wait; event "over $status"; exit "$status"
}
begin() {  # locks the GPU, and undoes what a killed script left there, or a shell of this one
  event "script $$"; find_gpu mig
  state=${XDG_STATE_HOME:-$HOME/.local/state}/advisor/gpus/$(uname -n)-$uuid.sh
  mkdir -p "${state%/*}" && exec 9>> "$state.lock"
  flock -w 2 9 || fail "GPU $index: another script runs jobs there. It wrote $state"
  boot="# boot $(< /proc/sys/kernel/random/boot_id)"
  ! grep -qsx "$boot" "$state" ||
    (my=$mark; eval "$(< "$state")"; [[ $mark = "$my"* || -z $(job_groups "$mark-") ]] && undo 0) ||
    fail "GPU $GPU: jobs of a killed script go on, or it is not undone: advisor doctor --undo"
  find_gpu "$1"; mark+=-$index; trap stop EXIT
  trap 'stop 129' HUP; trap 'stop 130' INT; trap 'stop 131' QUIT; trap 'stop 143' TERM
  (umask 077; { declare -p GPU uuid mark run state; declare -f; echo "$boot"; } > "$state")
}
job() {  # starts command $2... as job $1 in a session of its own; what it leaves ends with it
  (
    status=0; [ -z "$run" ] || exec > "$run/job-$1.log" 2>&1; event "started $1"
    ADVISOR_JOB=$1 ADVISOR_MARK=$mark-$1- ADVISOR_PROGRESS=${run:+$run/job-$1.progress} \
      CUDA_VISIBLE_DEVICES=$device CUDA_MPS_PIPE_DIRECTORY=$pipes \
      setsid bash -c 'trap : TERM; "$@"; exit $?' job "${@:2}" || status=$?
    end_jobs "$mark-$1-" 2 || :; event "ended $1 $status"
    [ ! -d "${ADVISOR_LOADER-}" ] || : > "$ADVISOR_LOADER/gone-$1" || :; exit "$status"
  ) 9>&- & jobs+=" $!"
}
wait_for_jobs() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=''; }
