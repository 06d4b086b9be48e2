#!/usr/bin/env bash
# 5 jobs on 2 h200-141gb.
# Tested with Slurm 22.05 on one node without a GPU; not yet on a cluster.
# gres.conf of the nodes:
#   AutoDetect=nvml
# slurm.conf, with the select/cons_tres plugin:
#   GresTypes=gpu
#   NodeName=NODE Gres=gpu:N
# N: all GPUs that the node has. Keep what else that line lists: other GPUs of the node are lost without it.
# Switch MIG mode off on the node: Slurm would give each job one instance of a GPU.
# Jobs under MPS start its daemon and stop it again: do not start one on the node.
# --time is twice the upper end of the predicted time; Slurm ends a job then.
# sbatch reads further options from SBATCH_PARTITION, SBATCH_ACCOUNT, ... in the environment.
# Set SBATCH_MEM_PER_NODE: profiles lack host memory: resnet50-imagenet64-bs128, bert-base-finetune-bs16-loader2, gpt2-small-pretrain-bs8.
# Job 4 has 2 GPUs: its command must use all of them, e.g. torchrun --nproc-per-node=2.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB is its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"  # limits and daemon that the environment of sbatch names
# Slurm kills a job 30 s after it asks it to end: what the job changed is undone before that.
export ADVISOR_GRACE_S=${ADVISOR_GRACE_S:-10}
declare -A id=()
ids=()
submit() {  # a job with the script on stdin, called $1; its ID becomes id[$1]
  local new
  new=$(sbatch --parsable --output=%x-%j.log --job-name="$1" "${@:2}") ||
    { [ ${#ids[@]} = 0 ] || scancel "${ids[@]}"; exit 1; }
  ids+=("${new%%;*}") id[$1]=${new%%;*}
}
script() {  # prints the one on stdin, with the functions that it calls
  cat; cat <<'END_'
set -euo pipefail
unset "${!CUDA_MPS_@}"; export CUDA_DEVICE_ORDER=PCI_BUS_ID  # GPUs count as in nvidia-smi
GPU=${GPU:-0} run=${ADVISOR_RUN-} undos=() jobs='' failed=0 mark=$(< /proc/sys/kernel/random/uuid)
fail() { echo "$*" >&2; exit 1; }; trap 'exit 131' QUIT  # which bash ignores otherwise
find_gpu() {  # its UUID, and its index, which beside a GPU in MIG mode CUDA would count otherwise
  uuid=$GPU index=$GPU client=$GPU mode=''
  [[ $GPU != cpu* && $GPU != MIG-* ]] && type -t nvidia-smi > /dev/null || return 0
  read -r uuid index client mode < <(timeout 60 nvidia-smi --query-gpu=uuid,index,mig.mode.current \
    --format=csv,noheader | awk -F ', ' -v gpu="$GPU" '$3 == "Enabled" { mig = 1 }
    gpu == $2 || index($1, gpu) == 1 { uuid = $1; n = $2; mode = $3 }
    END { if (uuid) print uuid, mig ? uuid : n, 0, mode }') || fail "GPU $GPU: see nvidia-smi -L"
  [ "$mode" != Enabled ] || [ "$1" = mig ] || fail "GPU $GPU is in MIG mode. Run sudo nvidia-smi" \
    "-i $GPU -mig 0 while nothing runs there, or choose a plan of MIG instances."
}
job_groups() {  # the process groups, as -GROUP, of all processes whose mark begins with $1
  { grep -lsz "^ADVISOR_MARK=$1" /proc/[0-9]*/environ | sed 's/environ$/stat/' |
    xargs -r sed 's/.*) . [0-9]* \([0-9]*\) .*/-\1/' | sort -u; } 2> /dev/null || :
}
end_jobs() {  # asks all processes whose mark begins with $1 to end; after $2 seconds kills them
  local left n grace_s=${2:-${ADVISOR_GRACE_S:-30}}
  for ((n = 0; n < grace_s * 5 + 50; n++)); do
    mapfile -t left < <(job_groups "$1"); [ "${#left[@]}" -gt 0 ] || return 0
    kill -$((n == 0 ? 15 : n < grace_s * 5 ? 0 : 9)) -- "${left[@]}" 2> /dev/null || :
    sleep 0.2
  done
  return 1
}
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
begin whole; plan; exit "$failed"
END_
}
submit gpu_0 --gres=gpu:1 --cpus-per-task=4 --time=345 < <(script <<'END_'
#!/usr/bin/env bash
GPU=${CUDA_VISIBLE_DEVICES:-0}
plan() {
  use_mps '' 1
  job 1 ./resnet50-imagenet64-bs128.sh
  job 2 ./bert-base-finetune-bs16-loader2.sh
  wait_for_jobs
}
END_
)
submit gpu_1 --job-name=bert-base-finetune-bs16-loader2 --gres=gpu:1 --cpus-per-task=3 --time=150 <<'END_'
#!/bin/sh
CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=3 ./bert-base-finetune-bs16-loader2.sh
END_
submit job_4 --job-name=gpt2-small-pretrain-bs8 --gres=gpu:2 --cpus-per-task=2 --nodes=1 --time=225 --dependency="afterany:${id[gpu_0]}:${id[gpu_1]}" <<'END_'
#!/bin/sh
CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=4 ./gpt2-small-pretrain-bs8.sh
END_
submit gpu_1_3 --job-name=resnet50-imagenet64-bs128 --gres=gpu:1 --cpus-per-task=1 --time=345 --dependency="afterany:${id[job_4]}" <<'END_'
#!/bin/sh
CUDA_MPS_PIPE_DIRECTORY=/dev/null ADVISOR_JOB=5 ./resnet50-imagenet64-bs128.sh
END_
echo "Submitted: ${ids[*]}"
