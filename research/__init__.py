"""Computes the numbers in README, `docs/` and `profiles/REPORT.md`; not in the wheel."""

import os

# Fitting solves many small systems, for which threads wait for each other up to 50 times longer.
# numpy and scipy read this when they are imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
