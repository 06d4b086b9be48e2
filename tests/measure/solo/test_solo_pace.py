from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from advisor.errors import AdvisorError
from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.windows import Timing
from advisor.measure.solo import solo_pace
from advisor.measure.solo.solo_pace import SoloPace
from advisor.workload.measured import Memory, Window

CALM = (Window(0.5, 50.0), Window(0.5, 51.0))
RESTLESS = (Window(0.5, 50.0), Window(0.5, 25.0))


def pace(windows):
    memory = Memory(allocated_mib=1.0, reserved_mib=2.0)
    return SoloPace(windows, 1.0, None, (None, None), memory, host_check_s=0.001, meter_s=0.25)


@pytest.mark.parametrize(
    ("looks", "kept"),
    [
        ([CALM], CALM),
        ([RESTLESS, CALM], RESTLESS + CALM + CALM),
        ([RESTLESS], RESTLESS * 3),
    ],
)
def test_where_windows_disagree_more_are_taken_and_every_one_is_kept(monkeypatch, looks, kept):
    seen = chain(map(pace, looks), repeat(pace(looks[-1])))
    monkeypatch.setattr(solo_pace, "measured_pace", lambda *_: next(seen))
    calm = solo_pace.repeated_pace(None, None, None, 0.01, 1.0)
    assert calm.windows == kept
    assert calm.meter_s == 0.25 * len(kept) / 2, "of every look"


class Stuck:
    """A tenant that takes no step, and for how long it is waited for."""

    setup = SimpleNamespace(cores=(0,))

    def __init__(self):
        self.waited_s = []

    def ask(self, verb, timeout_s=0.0, **_):
        return {"check_s": 0.001} if verb == "check_host" else self.receive(timeout_s)

    def send(self, verb, **_):
        pass

    def receive(self, timeout_s):
        self.waited_s.append(timeout_s)
        return Ended("died", "took no step")


def test_whoever_takes_no_step_is_waited_for_as_long_as_the_user_has_patience(monkeypatch):
    monkeypatch.setattr(solo_pace, "_metered", lambda *_: (None, (None, None), 0.0))
    tenant, timing = Stuck(), Timing(window_s=0.1, windows=1)
    with pytest.raises(AdvisorError, match="took no step"):
        solo_pace.settled_step_s(tenant, 0.1, patience_s=900.0)
    with pytest.raises(AdvisorError, match="took no step"):
        solo_pace.measured_pace(tenant, None, timing, 0.1, patience_s=900.0)
    assert all(900.0 <= each < 902.0 for each in tenant.waited_s)
    assert len(tenant.waited_s) == 2
