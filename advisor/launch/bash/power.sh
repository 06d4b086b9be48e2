set_power_limit() {  # nvidia-smi may print that it cannot set $1 watts, and exit with 0
  for _ in 1 2 3 4; do
    [ "$(query power.limit)" != "$1" ] || return 0
    as_root -i "$uuid" --power-limit="$1" >&2 || :
  done
  echo "GPU $GPU: its power limit is not $1 W. Run: sudo nvidia-smi -i $uuid --power-limit=$1" >&2
  return 1
}
cap_power() {  # to $1 watts until the end
  local was
  was=$(query power.limit) || was="unknown, $was"
  [[ $was = [0-9]* ]] || fail "GPU $GPU: its power limit is $was"
  undo_by set_power_limit "$was"
  set_power_limit "$1"
  kept=${#undos[@]}
}
