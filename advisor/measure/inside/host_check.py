"""A fixed piece of work by as many processes as a plan needs: run by the script's own Python.

Profiles and runs time it on the cores of a job; here processes float over all cores, so that slow
ones and shared hyperthreads count.
"""

import multiprocessing
import sys
from statistics import fmean
from time import perf_counter, time

from .clocks import piece_of_work

# A virtual core changes its speed within a second; over one, many cores average that.
_LASTS_S = 1.0
# The first pieces are slower.
_WARM_S = 0.1


def _mean_piece_s(start_at: float) -> float:
    """Repeat the piece for `_LASTS_S` from a moment of the wall clock; return its mean seconds."""
    work, pieces_s = piece_of_work(), []
    while time() < start_at:
        work()
    until = perf_counter() + _LASTS_S
    while perf_counter() < until:
        pieces_s.append(work())
    return fmean(pieces_s)


def main() -> None:
    """Print the mean seconds of a piece over as many processes at once as the last word asks."""
    busy = int(sys.argv[-1])
    with multiprocessing.get_context("fork").Pool(busy) as pool:
        start_at = time() + _WARM_S
        print(fmean(pool.map(_mean_piece_s, [start_at] * busy, chunksize=1)))
