"""The inner process of `advisor.running.supervisor.supervised`; not for use by hand."""

import sys

from advisor.running.supervisor import run_inner

if __name__ == "__main__":
    sys.exit(run_inner(sys.argv[1], sys.argv[2:]))
