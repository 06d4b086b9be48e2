wait_for_room() {  # until fewer than $1 jobs run; `wait -n` misses a job that ends just before it
  local running
  while mapfile -t running < <(jobs -pr); [ "${#running[@]}" -ge "$1" ]; do sleep 0.2; done
}
