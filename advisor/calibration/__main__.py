"""``python -m advisor.calibration --device 0``."""

import sys

from advisor.calibration import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
