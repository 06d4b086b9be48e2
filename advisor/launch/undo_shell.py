"""The script that ends a job of another script, or undoes what a killed one left."""

from advisor.launch import mig_shell
from advisor.launch.shell_state import state_words

_VERBS = r"""
state=$1
case $2 in
stop)
  end_jobs "$(sed -n 's/^jobs //p' "$state" | tail -n 1)-$3-" "${ADVISOR_GRACE_S:-30}"
  ;;
undo)
  exec 9>> "$state"
  flock -n 9 || { echo "$state: its script goes on" >&2; exit 1; }
  grep -qsx "boot $(< /proc/sys/kernel/random/boot_id)" "$state" || { : > "$state"; exit; }
  GPU=$(sed -n 's/^gpu //p' "$state" | tail -n 1)
  ADVISOR_RUN=$(sed -n 's/^run //p' "$state" | tail -n 1)
  [ -d "$ADVISOR_RUN" ] || ADVISOR_RUN=
  trap '' INT HUP TERM
  undo && : > "$state" && event "over 1"
  ;;
esac
"""


def undo_script() -> str:
    """Return a bash script with the words STATE stop JOB, or STATE undo; STATE is a state file."""
    words = state_words(mps=True, cap=True, mig=True)
    return "\n".join(["set -uo pipefail", *words, *mig_shell.words(), *_VERBS.strip().splitlines()])
