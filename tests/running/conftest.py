from tempfile import TemporaryDirectory

import pytest

from advisor.running.scratch import temporary_base


@pytest.fixture(scope="session")
def workers_folder():
    """Where the fork server of this test session keeps its socket: for as long as it lives."""
    with TemporaryDirectory(dir=temporary_base(), ignore_cleanup_errors=True) as folder:
        yield folder
