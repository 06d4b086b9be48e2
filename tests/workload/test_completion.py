"""Records of whole jobs that ran to their ends."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.observation import shared_runs
from advisor.validate.selection import of_pace
from advisor.workload.records import parse_record
from advisor.workload.run import Completion, Run
from advisor.workload.writing import run_line
from tests.validate.whole_jobs import LONG, SHORT, whole

NAIVE = whole("set-naive", "naive", (3.0, 5.0))


@pytest.mark.parametrize("run", [NAIVE, whole("died", "naive", (3.0, None))])
def test_a_run_is_read_as_it_was_written(run):
    assert parse_record(Run, run_line(run), "here") == run


def test_whole_jobs_teach_no_pace():
    assert not NAIVE.shows_pace
    assert shared_runs({p.name: p for p in (SHORT, LONG)}, [NAIVE], gpu("h200-141gb")) == ()
    assert of_pace([NAIVE]) == []


@pytest.mark.parametrize(
    "change", [{"completion": None}, {"purpose": "drawn"}, {"sharing": "serial"}]
)
def test_a_record_that_contradicts_itself_is_refused(change):
    with pytest.raises(InvalidInput):
        replace(NAIVE, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": (1,)}, {"steps": (0, 1)}, {"began_s": (-1.0, 0.0)}, {"ended_s": (0.0, 1.0)},
        {"pauses_s": (-0.1,)},
    ],
)  # fmt: skip
def test_times_that_cannot_be_are_refused(change):
    done = {"steps": (1, 2), "began_s": (0.0, 0.0), "ended_s": (1.0, 2.0), "pauses_s": ()}
    with pytest.raises(InvalidInput):
        Completion(**done | change, energy_j=None)
