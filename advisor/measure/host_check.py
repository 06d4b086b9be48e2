"""Checks how fast the host is for a script, by the script's own Python and torch.

A step's host path is Python and launches, so the piece of work is half interpreter and half
dispatch into torch: `advisor.measure.inside.host_check` does it.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from platform import node
from tempfile import TemporaryDirectory
from time import time

from advisor.errors import AdvisorError
from advisor.hardware.machine import HostCheck, host_check_file
from advisor.measure.inside import FOLDER
from advisor.workload.spec import Script, masked_words, python_of
from advisor.workload.writing import write_whole

VARIABLE = "ADVISOR_CHECK_HOST"
"""Environment variable of the option ``--check-host``; 0: ``--no-check-host``."""

# A first import of torch from a slow disk takes a minute.
_PATIENCE_S = 120.0

_NO_PYTHON = (
    "no job names its Python{}, and advisor's own has no torch. Profile a script by its Python, "
    "`advisor profile -- /path/to/env/bin/python train.py`, or add --no-check-host"
)


def check_host(at_once: int, script: Script | None, say: Callable[[str], None]) -> HostCheck | None:
    """Check the host with `at_once` busy processes, at most one a core, and keep the result.

    The Python that the command of `script` names does the work; without one, advisor's own. If
    that fails, `say` why in a line and return None.
    """
    cores = len(os.sched_getaffinity(0))
    busy = min(at_once, cores)
    try:
        check_s = _check_s(busy, script)
    except (AdvisorError, subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        *_, why = (getattr(error, "stderr", None) or str(error)).strip().splitlines() or [""]
        say(f"host not checked: {why}")
        return None
    check = HostCheck(check_s=check_s, busy=busy, cores=cores, host=node(), made_at=time())
    with suppress(AdvisorError, OSError):  # it is of use now, too
        write_whole(host_check_file(), json.dumps(asdict(check)) + "\n")
    return check


def _check_s(busy: int, script: Script | None) -> float:
    """Return the mean seconds of the piece of work with so many busy processes."""
    python = None if script is None else python_of(script.command)
    if python is None and find_spec("torch") is None:
        named = "" if script is None else f" (`{shlex.join(masked_words(script.command))[:80]}`)"
        raise AdvisorError(_NO_PYTHON.format(named))
    variables = {**os.environ, **({} if script is None else script.environment)}
    with TemporaryDirectory() as folder:
        Path(folder, "advisor_inside").symlink_to(FOLDER)
        paths = filter(None, [folder, variables.get("PYTHONPATH")])
        done = subprocess.run(
            [
                python or sys.executable,
                "-c",
                "from advisor_inside.host_check import main; main()",
                str(busy),
            ],
            env=variables | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            cwd="/" if script is None else script.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    return float(done.stdout.split()[-1])
