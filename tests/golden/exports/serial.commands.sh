#!/usr/bin/env bash
# Put your own command in place of each job's ./NAME.sh.
set -euo pipefail
jobs='' failed=0
job() { setsid "$@" & jobs="$jobs $!"; }
ended() { for each in $jobs; do wait "$each" || failed=$?; done; jobs=; }
stop() {  # also when interrupted, and whatever fails
  set +e
  trap '' INT HUP TERM
  for each in $jobs; do
    kill -s TERM -- "-$each" || kill -s TERM "$each"
  done 2> /dev/null
  wait
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
CUDA_VISIBLE_DEVICES=0 job taskset -c 0 ./resnet50-imagenet64-bs128.sh
ended
CUDA_VISIBLE_DEVICES=0 job taskset -c 0-2 ./bert-base-finetune-bs16-loader2.sh
ended
exit "$failed"
