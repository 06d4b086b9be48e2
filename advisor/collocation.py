"""``python -m advisor.collocation plans.json --out runs.jsonl``."""

import sys

from advisor.measure.process.supervisor import supervised

if __name__ == "__main__":
    sys.exit(supervised("advisor.measure.shared.run_list:main", sys.argv[1:]))
