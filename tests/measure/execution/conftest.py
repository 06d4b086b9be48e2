from tempfile import TemporaryDirectory

import pytest

from tests.measure.execution.runs import Execution


@pytest.fixture
def execution():
    """Makes a run's command; whatever a failed test leaves is ended."""
    made = []
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:

        def make(plan_of):
            made.append(Execution(folder, plan_of(folder)))
            return made[-1]

        yield make
        for each in made:
            each.clear()
