import gc
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from advisor.measure.process import temporary_base

# Threads of one small step wait for each other: on cores that others use, ten times as long as one
# thread takes. Read when numpy or torch is imported first, and by children.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Scripts of users are started by the word `python`: the one of this environment, as where it is
# activated, which `make check` does not do.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# What whoever runs the tests has measured, named or started stays out of them, and they of it.
_OWN = TemporaryDirectory(prefix="advisor-tests-", ignore_cleanup_errors=True)
for _kind in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
    os.environ[_kind] = _OWN.name

# A check of the host takes some seconds, and answers would depend on it.
os.environ["ADVISOR_CHECK_HOST"] = "0"

# How fast the machine is is no law. `make check-all` asks for the thorough profile, which draws
# other examples each time; the brief one takes the same, so that it fails for changes alone.
settings.register_profile("brief", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("brief")

# A shell starts what runs in its background with interrupts ignored, and children inherit that.
# Tests interrupt children on purpose, so they must start as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


# What collecting makes stays to the end: half a million objects, which there is no need to look
# through again and again for what could go.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def workers_folder():
    """Where the fork server of this test session keeps its socket: for as long as it lives."""
    with TemporaryDirectory(dir=temporary_base(), ignore_cleanup_errors=True) as folder:
        yield folder
