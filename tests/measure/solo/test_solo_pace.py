from itertools import chain, repeat

import pytest

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
    calm = solo_pace.repeated_pace(None, None, None, 0.01)
    assert calm.windows == kept
    assert calm.meter_s == 0.25 * len(kept) / 2, "of every look"
