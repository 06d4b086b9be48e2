"""Checks how fast the host is: a fixed piece of work, by as many processes as a plan needs.

A step's host path is Python and launches, so the piece is half interpreter and half dispatch into
torch. Profiles and runs time it on the cores of a job; here processes float over all cores, so that
slow ones and shared hyperthreads count.
"""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from platform import node
from statistics import fmean
from time import perf_counter, time

from advisor.errors import AdvisorError, require_extra
from advisor.measure.pdeathsig import die_with_parent
from advisor.workload.calibration import HostCheck
from advisor.workload.reading import host_check_file
from advisor.workload.writing import write_whole

VARIABLE = "ADVISOR_CHECK_HOST"
"""Environment variable of the option ``--check-host``; 0: ``--no-check-host``."""

# A virtual core changes its speed within a second; over one, many cores average that.
_LASTS_S = 1.0
# A first import of torch from a slow disk takes a minute.
_PATIENCE_S = 120.0


def check_host(at_once: int, say: Callable[[str], None]) -> HostCheck | None:
    """Check the host with `at_once` busy processes, at most one a core, and keep the result.

    If that fails, `say` why in a line and return None.
    """
    cores = len(os.sched_getaffinity(0))
    busy = min(at_once, cores)
    words = [sys.executable, "-m", "advisor.measure.host_check", str(busy)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        require_extra("--check-host", "profile", "torch")
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
        check_s = float(done.stdout)
    except (AdvisorError, subprocess.SubprocessError, OSError, ValueError) as error:
        *_, why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        say(f"host not checked: {why}")
        return None
    check = HostCheck(check_s=check_s, busy=busy, cores=cores, host=node(), made_at=time())
    with suppress(AdvisorError, OSError):  # it is of use now, too
        write_whole(host_check_file(), json.dumps(asdict(check)) + "\n")
    return check


# The first pieces are slower.
_WARM_S = 0.1


def _mean_piece_s(start_at: float) -> float:
    """Repeat the piece for `_LASTS_S` from a moment of the wall clock; return its mean seconds."""
    from advisor.measure.inside.clocks import piece_of_work

    die_with_parent()
    work, pieces_s = piece_of_work(), []
    while time() < start_at:
        work()
    until = perf_counter() + _LASTS_S
    while perf_counter() < until:
        pieces_s.append(work())
    return fmean(pieces_s)


def main(busy: int) -> None:
    """Print the mean seconds of a piece over `busy` processes at once."""
    import torch  # noqa: F401 - once, before the processes fork

    with multiprocessing.get_context("fork").Pool(busy) as pool:
        start_at = time() + _WARM_S
        print(fmean(pool.map(_mean_piece_s, [start_at] * busy, chunksize=1)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
