"""Host checks: made in processes of their own, and kept for ten minutes."""

import os
import sys
from dataclasses import asdict, replace
from json import dumps
from platform import node
from time import time

import pytest

from advisor.measure.host_check import check_host
from advisor.workload.store import recent_host_check
from tests.measure.calibrate import recorded


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "advisor" / "host"


def test_this_host_is_checked_by_as_many_processes_as_it_has_cores():
    assert recent_host_check() is None
    check = check_host(10**6, pytest.fail)
    assert check.check_s > 0
    assert check.busy == check.cores == len(os.sched_getaffinity(0))
    assert recent_host_check() == check


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True), ({"made_at": time() - 3600}, False), ({"host": "another"}, False),
        ({"check_s": -1.0}, False),
    ],
)  # fmt: skip
def test_a_check_counts_on_its_own_host_for_ten_minutes(changes, counts, cache):
    check = replace(recorded.host_check(), host=node(), made_at=time())
    cache.mkdir(parents=True)
    (cache / f"{node()}.json").write_text(dumps(asdict(check) | changes))
    assert (recent_host_check() == check) == counts


def test_a_check_that_fails_is_reported_in_a_line(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('no such package')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    lines = []
    assert check_host(1, lines.append) is None
    assert [line.count("no such package") for line in lines] == [1]
