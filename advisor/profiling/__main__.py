"""``python -m advisor.profiling WORKLOAD... --out DIR``."""

import sys

from advisor.profiling import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
