"""Starts the inner process of `advisor.measure.process.supervisor.supervised`; not for users."""

import sys

from advisor.measure.process.supervisor import run_inner

if __name__ == "__main__":
    sys.exit(run_inner(sys.argv[1], sys.argv[2:]))
