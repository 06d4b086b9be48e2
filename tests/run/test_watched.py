"""A run whose clock, events and steps the test sets: paces, time left, and records for `fit`."""

import json

import pytest

from advisor.launch.plan_file import plans_text
from advisor.measure.device import Device, Origin
from advisor.measure.script import ReportedProgress
from advisor.run import watched
from advisor.run.watched import SETTLE_S, Events, WatchedRun
from tests.run.machine import job, prepared

ORIGIN = Origin(Device("cpu", None, "cpu", "a processor", None), "advisor run", 2)


class Meter:
    """A GPU that always draws 500 W."""

    def memory_mib(self):
        return {}

    def power_w(self):
        return 500.0

    def clocks_mhz(self):
        return 1980, 3201


class Rehearsal:
    """A run of some jobs that start at once, unless the test says which do."""

    def __init__(self, folder, monkeypatch, sharing, jobs, started=None):
        jobs = ["true"] * jobs if isinstance(jobs, int) else jobs
        plan, count = prepared(sharing, *jobs), len(jobs)
        (folder / "plan.json").write_text(plans_text([plan], with_steps=True))
        about = {"schema": 1, "gpu": "h200-141gb", "device": "cpu", "since": "", "grace_s": 3}
        (folder / "run.json").write_text(json.dumps(about | {"steps": None, "cores": None}))
        self.run = WatchedRun(folder, Meter())
        self.planned_s = [job.planned.step_s.p50 for job in self.run.jobs]
        self.steps = self.run.jobs[0].steps
        self.now_s, self.done = 0.0, [0.0] * count
        self.events = Events(started_s=dict.fromkeys(started or range(1, count + 1), 0.0))
        monkeypatch.setattr(watched, "events_in", lambda _: self.events)
        monkeypatch.setattr(watched, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(watched, "read_progress", self._progress)

    def _progress(self, path):
        number = int(path.stem.removeprefix("job-"))
        return ReportedProgress(self.done[number - 1], self.now_s)

    def run_for(self, seconds, *steps_s):
        """Let running jobs do steps of `steps_s`, the same for all if there is one; then look."""
        steps_s = steps_s * len(self.done) if len(steps_s) == 1 else steps_s
        for _ in range(round(seconds / 0.5)):
            self.now_s += 0.5
            for number in self.events.running:
                self.done[number - 1] += 0.5 / steps_s[number - 1]
            self.run.look()


@pytest.fixture
def rehearse(tmp_path, monkeypatch):
    return lambda *words, **started: Rehearsal(tmp_path, monkeypatch, *words, **started)


def test_the_first_second_of_steady_steps_replaces_the_prediction_and_a_pace_that_leaves_it_is_seen(
    rehearse,
):
    run = rehearse("naive", 2)
    run.run_for(SETTLE_S, 0.2)  # compilation
    assert [job.expected.p50 for job in run.run.jobs] == pytest.approx(run.planned_s)
    run.run_for(15.0, 0.3, 0.04)  # one is far from the prediction, and steady
    assert [job.expected.p50 for job in run.run.jobs] == pytest.approx([0.3, 0.04])
    assert all(1.1 < job.expected.p95 / job.expected.p05 < 1.2 for job in run.run.jobs)
    assert [job.drifted for job in run.run.jobs] == [False, False]
    run.run_for(30.0, 0.3, 0.06)
    assert [job.drifted for job in run.run.jobs] == [False, True]
    run.now_s += 100
    assert run.run.silent(50) == [1, 2]
    run.run.look()
    assert run.run.silent(200) == []


def test_time_left_is_the_steps_left_at_the_pace_of_now(rehearse):
    run = rehearse("naive", 2)
    run.run_for(20.0, 0.04, 0.02)
    assert run.run.left_s == pytest.approx((run.steps - run.done[0]) * 0.04)
    run.run_for(40.0, 0.04, 0.1)  # the pace of the last 30 s counts, not the first second
    assert run.run.left_s == pytest.approx((run.steps - run.done[1]) * 0.1)
    run.events.ended = {1: (0, run.now_s)}  # the pace of the other changes
    run.run_for(1.0, 0.01)
    assert run.run.jobs[1].first_s is None
    run.run_for(SETTLE_S + 1.0, 0.01)
    assert run.run.jobs[1].first_s == pytest.approx(0.01)
    assert run.run.left_s == pytest.approx((run.steps - run.done[1]) * 0.01)


@pytest.mark.parametrize(
    ("sharing", "started", "waiting"),
    [("naive[1];naive[2]", (1,), (2,)), ("naive/2[3,1,2]", (3, 1), (2,)), ("naive", (1, 2), ())],
)
def test_jobs_that_wait_for_their_turn_count_to_the_time_left_as_planned(
    rehearse, sharing, started, waiting
):
    run = rehearse(sharing, len(started) + len(waiting), started=started)
    run.run_for(20.0, 0.01)
    waits_s = sum(run.steps * run.planned_s[number - 1] for number in waiting)
    assert run.run.left_s == pytest.approx((run.steps - run.done[0]) * 0.01 + waits_s)


def test_steps_that_jobs_did_together_become_a_run_to_learn_from(rehearse):
    run = rehearse("naive", 2, started=(1,))
    run.run_for(5.0, 0.1)
    run.events.started_s[2] = run.now_s  # starts later, and ends earlier
    run.run_for(15.0, 0.1, 0.05)
    run.events.ended = {2: (0, run.now_s)}
    run.run_for(10.0, 0.1)
    (record,) = run.run.records(ORIGIN, [0, 1])
    assert (record.sharing, record.purpose, record.gpu) == ("naive", "validation", "cpu")
    assert record.power_w == 500
    assert [each.step_s for each in record.tenants] == pytest.approx([0.1, 0.05])
    for tenant in record.tenants:  # after the jobs have settled
        assert sum(each.seconds for each in tenant.windows) == pytest.approx(15 - SETTLE_S, abs=1)


def test_the_first_jobs_of_a_queue_become_a_run_to_learn_from(rehearse):
    run = rehearse("naive/2[3,1,2]", 3, started=(1, 3))
    run.run_for(21.0, 0.1, 0.1, 0.05)
    (record,) = run.run.records(ORIGIN, [0, 1])
    assert record.sharing == "naive"
    assert sorted(each.step_s for each in record.tenants) == pytest.approx([0.05, 0.1])


def test_a_job_that_prints_its_pace_is_watched_by_that(rehearse, tmp_path):
    printing = (job("true", throughput="([0-9]+) ex"), job("true", seconds_per_step="([0-9.]+) s/"))
    run = rehearse("naive", printing)
    for _ in range(21):
        for number in (1, 2):
            with (tmp_path / f"job-{number}.log").open("a") as log:
                log.write("rate 10 examples/s, 0.1 s/step\n")
        run.run_for(1.0, 1.0)
    assert [each.done for each in run.run.jobs] == pytest.approx([200, 200], abs=1)
    assert [each.step_s for each in run.run.jobs] == pytest.approx([0.1, 0.1], rel=0.02)
