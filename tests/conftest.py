import signal
from tempfile import TemporaryDirectory

import pytest

from advisor.running.scratch import temporary_base

# A shell starts what runs in its background with interrupts ignored, and children inherit that.
# Tests interrupt children on purpose, so they must start as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def workers_folder():
    """Where the fork server of this test session keeps its socket: for as long as it lives."""
    with TemporaryDirectory(dir=temporary_base(), ignore_cleanup_errors=True) as folder:
        yield folder
