"""``python -m advisor.execution run plan.json --apply``."""

import sys

from advisor.measure.execution.execution_command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
