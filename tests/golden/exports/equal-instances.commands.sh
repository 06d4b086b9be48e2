#!/usr/bin/env bash
# Untested on MIG hardware: written from NVIDIA's documentation. Nothing else may run on the GPU.
# Put your own command in place of each ./NAME.sh; ADVISOR_JOB tells it its number.
set -euo pipefail
unset "${!CUDA_MPS_@}"
FIRST_CORE=${FIRST_CORE:-0}  # of the jobs; other scripts beside them: others
cores() {  # numbers $1 to $2 of the cores that this shell may use, from FIRST_CORE on, then again
  # Where Slurm gives cores and does not bind to them, these would be everybody's: all, then.
  awk -v first=$((FIRST_CORE + $1)) -v last=$((FIRST_CORE + $2)) \
    -v given="${SLURM_CPUS_ON_NODE:-0}" '/^Cpus_allowed_list:/ {
      parts = split($2, part, ",")
      for (at = 1; at <= parts; at++) {
        ends = split(part[at], end, "-")
        for (core = end[1] + 0; core <= end[ends] + 0; core++) may[count++] = core
      }
    }
    END {
      if (given + 0 && count > given + 0) { first = 0; last = count - 1 }
      for (at = first; at <= last; at++) printf "%s%s", (at > first ? "," : ""), may[at % count]
    }' /proc/self/status
}
jobs='' failed=0 NO_MPS=''
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  set +e
  trap '' INT HUP TERM
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
  mig_undo
  rm -rf "$NO_MPS"
}
GPU=${GPU:-0}  # its index or its UUID, as nvidia-smi -L lists them
export CUDA_DEVICE_ORDER=PCI_BUS_ID
made=${XDG_RUNTIME_DIR:-$HOME}/.advisor-mig-$GPU-$(< /proc/sys/kernel/random/boot_id)
exec 9>> "$made"  # jobs inherit it: what they run on is not removed
flock -n 9 || { echo "GPU $GPU: this runs already, or its jobs do. See $made" >&2; exit 1; }
mig() { sudo nvidia-smi mig -i "$GPU" "$@"; }
mig_is() {  # whether MIG mode is $1, now and after a reset
  local mode
  mode=$(nvidia-smi -i "$GPU" --query-gpu=mig.mode.current,mig.mode.pending \
    --format=csv,noheader) || return
  [ "$mode" != "$1, $1" ] || return 0
  echo "GPU $GPU: MIG mode, now and after a reset: $mode. It must be $1. While nothing runs" \
    "there: sudo nvidia-smi -i $GPU -mig $2; if it stays pending, --gpu-reset" >&2
  return 1
}
mig_list() {  # to have none is an error to nvidia-smi, and none here
  local said
  said=$(mig "$@" 2>&1) || case $said in
  *"Not Found"* | *"No "*"instances found"*) said= ;;
  *) echo "$said" >&2; return 1 ;;
  esac
  echo "$said"
}
mig_gi() {  # the ID of the GPU instance PROFILE:START; nothing where there is none
  local list
  list=$(mig_list -lgi) || return
  awk -v profile="${1%:*}" -v start="${1#*:}:" \
    '$3 == "MIG" && $5 == profile && index($7, start) == 1 { print $6 }' <<< "$list"
}
mig_make() {  # makes GPU instances PROFILE:START; with compute instances where $1 is -C
  local how=$1 each there
  shift
  for each in "$@"; do
    there=$(mig_gi "$each") || return
    [ -z "$there" ] || { echo "GPU $GPU: $each is there already, somebody else's" >&2; return 1; }
  done
  printf '%s\n' "$@" >> "$made" || return
  (IFS=,; mig -cgi "$*" ${how:+"$how"})
}
mig_split() {  # makes compute instances of these names in the GPU instance PROFILE:START
  local gi
  gi=$(mig_gi "$1") || return
  mig -cci "$2" -gi "$gi"
}
mig_uuid() {  # of the compute instance number $3 called $2, or of the only one, in PROFILE:START
  local gi list ci found
  gi=$(mig_gi "$1") && list=$(mig_list -lci -gi "$gi") || return
  ci=$(awk -v name="${2:-}" -v nth="${3:-1}" \
    '$4 == "MIG" && (name == "" || $5 == name) && ++n == nth { print $7 }' <<< "$list")
  list=$(nvidia-smi -i "$GPU" -q) || return
  found=$(awk -F ' *: *' -v gi="$gi" -v ci="$ci" '/^ +Index / { index_of = $2 }
    /GPU Instance ID/ { in_gi = $2 == gi }
    /Compute Instance ID/ && in_gi && $2 == ci { print index_of; exit }' <<< "$list")
  list=$(nvidia-smi -L) || return
  awk -v gpu="$GPU" -v device="$found:" '/^GPU / { on = $2 == gpu ":" || index($0, ": " gpu ")") }
    on && $1 == "MIG" && $4 == device { sub(/\)$/, "", $6); print $6; found = 1; exit }
    END { exit !found }' <<< "$list" || { echo "GPU $GPU: no MIG device in $1" >&2; return 1; }
}
mig_undo() {  # removes what was made; again and again, since that fails for a moment
  local each gi left
  while read -r each <&8; do
    case $each in /*)
      CUDA_MPS_PIPE_DIRECTORY=$each mps_stop || return
      rm -rf "$each"
      ;;
    esac
  done 8< "$made"
  for _ in $(seq 50); do
    left=
    while read -r each <&8; do
      case $each in /*) continue ;; esac
      gi=$(mig_gi "$each") || left=$each
      [ -n "$gi" ] || continue
      left=$each
      mig -dci -gi "$gi" > /dev/null 2>&1
      mig -dgi -gi "$gi" > /dev/null 2>&1
    done 8< "$made"
    [ -n "$left" ] || { : > "$made"; return; }
    sleep 0.2
  done
  echo "GPU $GPU: $left is not removed. Once nothing runs on it, run this again, or remove it:" \
    "sudo nvidia-smi mig -i $GPU -lgi, -dci, -dgi" >&2
  return 1
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
NO_MPS=$(mktemp -d) || exit
export CUDA_MPS_PIPE_DIRECTORY="$NO_MPS"  # jobs without MPS find no daemon there
mig_undo || exit
mig_is Enabled 1 || exit
mig_make -C 15:4 19:0 19:1 || exit
MIG_1=$(mig_uuid 19:0) || exit
MIG_2=$(mig_uuid 19:1) || exit
MIG_3=$(mig_uuid 15:4) || exit
ADVISOR_JOB=1 CUDA_VISIBLE_DEVICES="$MIG_1" job taskset -c "$(cores 0 0)" ./resnet50-imagenet64-bs128.sh
ADVISOR_JOB=2 CUDA_VISIBLE_DEVICES="$MIG_2" job taskset -c "$(cores 1 3)" ./bert-base-finetune-bs16-loader2.sh
ADVISOR_JOB=3 CUDA_VISIBLE_DEVICES="$MIG_3" job taskset -c "$(cores 4 4)" ./gpt2-small-pretrain-bs8.sh
ended
mig_undo || exit
exit "$failed"
