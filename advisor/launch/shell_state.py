"""Shell words by which a script ends its jobs and puts back what it changed on the machine.

A script writes each change as a plain line into its state file before it makes it: one file for a
user, a host and a GPU, locked while the script lives. `undo` reads that file and nothing else, so
it is the same for the script's own end, for the next script on that GPU after a kill, and for
`undo_script`, which `advisor stop` and `advisor doctor --undo` run.

    boot ID           the machine's boot, which nothing below outlives
    gpu GPU           index or UUID
    script PID        the shell
    run FOLDER        of `advisor run`, if that started it
    jobs MARK         every process of a job has ADVISOR_MARK=MARK-NUMBER- in its environment
    job MARK-1- 7 99  the first process of job 1 is 7, born 99 clock ticks after boot
    mode Enabled      MIG mode before
    cap 500.00        power limit before, in watts
    took ID:START CI  a GPU instance of somebody else's that was removed, and what was in it
    made ID:START     a GPU instance
    mps FOLDER        pipes of an MPS daemon
    folder FOLDER     temporary
    undone LINE       that line is undone
"""

from collections.abc import Iterator

from advisor.hardware.machine import CONTROL


def _lines(text: str) -> list[str]:
    return text.strip().replace("CONTROL", CONTROL).splitlines()


_JOBS = _lines(r"""
note() { printf '%s\n' "$*" >> "$state"; }  # before each change: one line that tells how to undo it
event() {  # for whoever watches: what happened, and the seconds since the machine started
  [ -z "${ADVISOR_RUN-}" ] || echo "$* $(cut -d ' ' -f 1 /proc/uptime)" >> "$ADVISOR_RUN/events"
}
left() {  # the lines of the state file that are not undone: jobs, then the others, the last first
  awk '$1 == "undone" { sub(/^undone /, ""); delete at[$0]; next } { at[$0] = NR; line[NR] = $0 }
    END {
      for (jobs = 1; jobs >= 0; jobs--) for (n = NR; n; n--)
        if ((n in line) && at[line[n]] == n && jobs == (line[n] ~ /^jobs /)) print line[n]
    }' "$state"
}
born() {  # when a process that has not ended was born; a pid alone names none for long
  local stat
  { stat=$(< "/proc/$1/stat"); } 2> /dev/null || return
  read -ra stat <<< "${stat##*) }"
  [ "${stat[0]}" = Z ] || echo "${stat[19]}"
}
marked() {  # the processes of the jobs whose mark begins with $1
  local mark pid birth
  grep -lsz "^ADVISOR_MARK=$1" /proc/[0-9]*/environ | cut -d / -f 3 || :
  while read -r _ mark pid birth; do
    [ -n "$birth" ] || continue
    case $mark in "$1"*) [ "$(born "$pid")" != "$birth" ] || echo "$pid" ;; esac
  done < <(grep '^job ' "$state")
}
send() {  # a signal to the process groups of these processes, or to the processes alone
  local how=$1 each
  shift
  for each in "$@"; do kill -s "$how" -- "-$each" || kill -s "$how" "$each" || :; done 2> /dev/null
}
end_jobs() {  # asks what is marked $1 to end; after $2 seconds kills what is left
  local all now
  all=$(marked "$1") now=$all
  [ -n "$all" ] || return 0
  # shellcheck disable=SC2086
  send TERM $all
  for ((tries = $2 * 5; tries > 0; tries--)); do
    now=$(marked "$1")
    [ -n "$now" ] || break
    sleep 0.2
  done
  # shellcheck disable=SC2086
  ! declare -F mps_release > /dev/null || [ -z "$now" ] || mps_release $now
  # shellcheck disable=SC2086
  send KILL $all $now
  for ((tries = 50; tries > 0; tries--)); do
    now=$(marked "$1")
    [ -n "$now" ] || return 0
    # shellcheck disable=SC2086
    send STOP $now
    # shellcheck disable=SC2086
    send KILL $now
    sleep 0.1
  done
  echo "These processes do not end, see dmesg:" $now >&2
  return 1
}
""")

START_WORDS = _lines(r"""
jobs='' failed=0 mark=$(< /proc/sys/kernel/random/uuid)
job() {  # starts a job in a session of its own; all of its processes end with it
  (
    if [ -n "${ADVISOR_RUN-}" ]; then
      exec > "$ADVISOR_RUN/job-$ADVISOR_JOB.log" 2>&1
      export ADVISOR_PROGRESS=$ADVISOR_RUN/job-$ADVISOR_JOB.progress
    fi
    event "started $ADVISOR_JOB"
    status=0
    ADVISOR_MARK=$mark-$ADVISOR_JOB- setsid "$@" &
    note "job $mark-$ADVISOR_JOB- $! $(born $!)" || :
    wait $! || status=$?
    end_jobs "$mark-$ADVISOR_JOB-" 2 || :
    event "ended $ADVISOR_JOB $status"
    exit "$status"
  ) 9>&- &
  jobs="$jobs $!"
}
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  local status=$?
  set +e
  trap '' INT HUP TERM
  undo && : > "$state" || status=1
  wait
  [ -z "${scratch-}" ] || rm -rf "$scratch"
  event "over $status"
  exit "$status"
}
""")
"""Lines that define `job`, `ended` and `stop`."""

_LOCK = _lines(r"""
gpu_id() {
  local id
  id=$(nvidia-smi -i "$GPU" --query-gpu=uuid --format=csv,noheader 2> /dev/null) || id=
  echo "${id:-$GPU}"
}
state=${XDG_STATE_HOME:-$HOME/.local/state}/advisor/gpus/$(uname -n)-$(gpu_id)
mkdir -p "${state%/*}"
exec 9>> "$state"  # locked while this shell lives; its jobs do not hold it
flock -w 2 9 || { echo "GPU $GPU: another script runs jobs there. It wrote $state" >&2; exit 1; }
boot=$(< /proc/sys/kernel/random/boot_id)
grep -qsx "boot $boot" "$state" || : > "$state"
for each in $(left | awk '$1 == "jobs" { print $2 }'); do
  each=$(marked "$each-")
  [ -z "$each" ] || {
    echo "GPU $GPU: jobs of a script that was killed go on, processes" $each "in $state." \
      "Wait for them, or end them: advisor doctor --undo" >&2
    exit 1
  }
done
undo || exit  # what a killed script left
: > "$state"
note "boot $boot"
note "gpu $GPU"
note "script $BASHPID"
[ -z "${ADVISOR_RUN-}" ] || note "run $ADVISOR_RUN"
event "state $state"
""")

MPS_WORDS = _lines(r"""
mps_answers() { echo get_server_list | timeout 10 CONTROL > /dev/null 2>&1; }
mps_start() {  # fails where the daemon does not answer: CUDA would run without MPS
  CONTROL -d 9>&- && for _ in $(seq 50); do
    mps_answers && return
    sleep 0.1
  done
  echo "MPS does not start. The end of its log:" >&2
  tail -qn 9 "$CUDA_MPS_LOG_DIRECTORY"/*.log >&2 2> /dev/null || :
  return 1
}
mps_stop() {  # asks again and again, and waits for its servers too, which hold the GPU
  local said pid servers='' silent=0 until=$((SECONDS + 30))
  for _ in $(seq 100); do
    [ "$SECONDS" -lt "$until" ] || break
    if said=$(echo get_server_list | timeout 10 CONTROL 2> /dev/null); then
      servers=${said:-$servers} silent=0
      echo quit | timeout 10 CONTROL > /dev/null 2>&1 || :
    else
      # shellcheck disable=SC2086
      [ $((silent += 1)) -lt 2 ] || kill -0 $servers 2> /dev/null || return 0
    fi
    sleep 0.1
  done
  # A server whose clients were killed may answer nothing: it and its daemon are killed, too.
  for pid in $(grep -lszxF "CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY" \
    /proc/[0-9]*/environ | cut -d / -f 3); do
    case $(cat "/proc/$pid/comm") in nvidia-cuda-mps*) kill -s KILL "$pid" || : ;; esac
  done 2> /dev/null
  sleep 1
  mps_answers || return 0
  echo "MPS does not end. Its log: $CUDA_MPS_PIPE_DIRECTORY" >&2
  return 1
}
""")
"""Lines that define how a script starts, asks and stops the daemon of its folder of pipes."""

# A client that is killed in the middle of its work can take the others with it (NVIDIA's MPS
# documentation, terminate_client).
_RELEASE = _lines(r"""
mps_release() {  # has the MPS servers let go of these processes before they are killed
  local word pipes server each
  while read -r word pipes; do
    [ "$word" = mps ] || continue
    for server in $(echo get_server_list | CUDA_MPS_PIPE_DIRECTORY=$pipes timeout 10 CONTROL)
    do
      for each in "$@"; do
        echo "terminate_client $server $each" | CUDA_MPS_PIPE_DIRECTORY=$pipes timeout 10 CONTROL
      done
    done > /dev/null 2>&1
  done < <(left) 2> /dev/null
}
""")

_UNDO = r"""
undo() {  # undoes the lines of the state file of these kinds, or all, the last first
  local line rest bad=0 kinds=" $* "
  while IFS= read -r line <&8; do
    [ "$kinds" = "  " ] || [[ $kinds == *" ${line%% *} "* ]] || continue
    rest=${line#* }
    case ${line%% *} in
    boot | gpu | script | run | job) continue ;;
    ACTS
    *) false ;;
    esac && note "undone $line" || {
      echo "not undone: $line, in $state. Try again: advisor doctor --undo" >&2
      bad=1
    }
  done 8< <(left)
  return $bad
}
"""
_ALWAYS = {
    "jobs": 'end_jobs "$rest-" "${ADVISOR_GRACE_S:-30}"',
    "folder": 'case $rest in *advisor-*) rm -rf "$rest" ;; esac',
}
_MPS = {"mps": f"CUDA_MPS_PIPE_DIRECTORY=$rest mps_stop && {_ALWAYS['folder']}"}
_CAP = {"cap": 'as_root nvidia-smi -i "$GPU" --power-limit="$rest"'}
_MIG = {"made": 'mig_remove "$rest"', "took": "mig_again $rest", "mode": "mig_back $rest"}


def state_words(*, mps: bool, cap: bool = False, mig: bool = False) -> Iterator[str]:
    """Yield lines that define how jobs end, and `undo` of changes; `mig` needs `MIG_WORDS`."""
    yield from _JOBS
    yield from (*MPS_WORDS, *_RELEASE) if mps else ()
    if cap or mig:
        yield 'as_root() { if [ "$EUID" = 0 ]; then "$@"; else sudo "$@"; fi; }'
    acts = _ALWAYS | (_MPS if mps else {}) | (_CAP if cap else {}) | (_MIG if mig else {})
    cases = "\n    ".join(f"{kind}) {act} ;;" for kind, act in acts.items())
    yield from _lines(_UNDO.replace("ACTS", cases))


def lock_words(*, by_scheduler: bool) -> Iterator[str]:
    """Yield lines that lock the GPU, undo what a killed script left, and undo all at the end.

    A scheduler assigns GPUs, and ends what a killed script left: the state is its own then.
    """
    if by_scheduler:
        yield "scratch=$(mktemp -d /tmp/advisor-state.XXXXXX) || exit"
        yield "state=$scratch/state"
        yield ': > "$state"'
    else:
        yield from _LOCK
    yield "trap stop EXIT"
    yield "trap 'exit 130' INT"
    yield "trap 'exit 143' HUP TERM"
    yield 'note "jobs $mark"'
