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
