"""``python -m advisor.campaign PLAN.toml --devices 0-7 --out DIR``."""

import sys

from advisor.campaign import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
