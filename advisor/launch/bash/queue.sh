wait_for_room() {  # until fewer than $1 jobs run; `wait -n` misses a job that ends just before it
  local running
  while mapfile -t running < <(jobs -pr); [ "${#running[@]}" -ge "$1" ]; do sleep 0.2; done
}
run_lines() {  # runs the jobs of each line one after another, and all lines at once
  local at next running; local -a lines=("$@") last
  while [[ ${lines[*]} = *[0-9]* ]] && mapfile -t running < <(jobs -pr); do
    for at in "${!lines[@]}"; do
      [[ -n ${lines[at]} && " ${running[*]} " != *" ${last[at]-none} "* ]] || continue
      read -r next lines[at] <<< "${lines[at]}"; "start_$next"; last[at]=$!
    done
    sleep 0.2
  done
}
