"""A check of the host at hand, which advice makes for itself."""

import os
from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.measure import host_now as module
from advisor.measure.host_now import host_now
from advisor.measure.process.supervisor import INTERRUPTED
from tests import shelf


@pytest.fixture
def ended(monkeypatch):
    """Makes the checking process end so, having written this."""

    def end(code, text=None):
        def supervised(entry, argv):
            assert entry == "advisor.measure.host_now:run"
            if text is not None:
                Path(argv[0]).write_text(text)
            return code

        monkeypatch.setattr(module, "supervised", supervised)

    return end


def test_it_is_a_calibration_with_host_checks_and_nothing_else(ended):
    ended(0, "[[1, 0.001], [2, 0.0012]]")
    found = host_now(shelf.GPU)
    assert found.gpu == shelf.GPU
    assert [found.host_check_s(cores) for cores in (1, 2, 8)] == [1e-3, 1.2e-3, 1.2e-3]
    assert (found.contexts, found.switching, found.idle_power_w) == (None, (), None)
    assert found.provenance.host_cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("code", "error"), [(1, AdvisorError), (INTERRUPTED, KeyboardInterrupt)])
def test_a_process_that_could_not_check_is_an_error(ended, code, error):
    ended(code)
    with pytest.raises(error):
        host_now(shelf.GPU)


def test_this_host_is_really_checked():
    found = host_now(shelf.GPU)
    assert [each.cores for each in found.host][:1] == [1]
    assert all(each.check_s > 0 for each in found.host)
