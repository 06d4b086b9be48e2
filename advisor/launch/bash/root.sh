as_root() { if [ "$EUID" = 0 ]; then "$@"; else sudo "$@"; fi; }
query() { nvidia-smi -i "$uuid" --query-gpu="$1" --format=csv,noheader,nounits; }
