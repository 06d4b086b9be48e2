"""``python -m advisor.collocation plans.json --out runs.jsonl``."""

import sys

from advisor.running.supervisor import supervised

if __name__ == "__main__":
    sys.exit(supervised("advisor.collocation.campaign:main", sys.argv[1:]))
