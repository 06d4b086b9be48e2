"""A plan corrected by the first second of its steps: its rest, and its host."""

from dataclasses import replace

import pytest

from advisor.api import Advisor
from advisor.launch.plan_file import SavedPlan, plans_text, prepare
from advisor.measure.script import ReportedProgress
from advisor.run import watched_job, watched_run
from advisor.run.measured_pace import PacedPlan, infer_host_factor, rest_of_run
from advisor.run.watched_job import SETTLE_S, Events
from advisor.run.watched_run import WatchedRun
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from tests import shelf, synthetic

GPU_BOUND, HOST_BOUND = "resnet50-imagenet64-bs128", "resnet26-cifar10-bs128"


class Meter:
    """A GPU that always draws 500 W."""

    def memory_mib(self):
        return {}

    def power_w(self):
        return 500.0

    def clocks_mhz(self):
        return 1980, 3201


class Rehearsal:
    """A run whose clock and steps the test sets, as `advisor run` looks at it."""

    def __init__(self, folder, monkeypatch, names, sharing):
        self.advisor = Advisor(shelf.GPU)
        jobs = self.advisor.jobs(names)
        self.saved = SavedPlan(
            gpu=shelf.GPU,
            sharing=parse_sharing(sharing),
            jobs=jobs,
            power_cap_w=None,
            numbers=tuple(range(1, len(jobs) + 1)),
        )
        prediction = self.advisor.predict(jobs, sharing).prediction
        self.predicted_s = [job.step_s.p50 for job in prediction.jobs]
        plan = prepare(self.saved, self.advisor.card, prediction)
        (folder / "plan.json").write_text(plans_text([plan], with_steps=True))
        self.now_s, self.done = 0.0, [0.0] * len(jobs)
        self.events = Events(started_s=dict.fromkeys(range(1, len(jobs) + 1), 0.0))
        monkeypatch.setattr(watched_run, "events_in", lambda _: self.events)
        monkeypatch.setattr(watched_run, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(watched_job, "read_progress", self._progress)
        self.paced = PacedPlan(self.saved, self.advisor)
        self.run = WatchedRun(folder, None, Meter(), self.paced.expected)

    def _progress(self, path):
        number = int(path.stem.removeprefix("job-"))
        return ReportedProgress(self.done[number - 1], self.now_s)

    def run_for(self, seconds, slower):
        """Let jobs do steps so many times as long as predicted, and look twice a second."""
        for _ in range(round(seconds / 0.5)):
            self.now_s += 0.5
            paces = zip(self.predicted_s, slower, strict=True)
            self.done = [
                done + 0.5 / (step_s * factor)
                for done, (step_s, factor) in zip(self.done, paces, strict=True)
            ]
            self.run.look()
            self.paced.correct(self.run)


@pytest.fixture
def rehearse(tmp_path, monkeypatch):
    shelf.fill(tmp_path)
    monkeypatch.setenv("ADVISOR_PROFILES", str(tmp_path / "profiles"))
    monkeypatch.setenv("ADVISOR_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    return lambda *words: Rehearsal(tmp_path, monkeypatch, *words)


def test_the_first_second_of_steady_steps_replaces_the_prediction(rehearse):
    plan = rehearse([GPU_BOUND, HOST_BOUND], "naive")
    plan.run_for(SETTLE_S, (9.0, 9.0))  # compilation
    assert [job.expected.p50 for job in plan.run.jobs] == pytest.approx(plan.predicted_s)
    assert plan.run.remaining is None
    plan.run_for(3.0, (1.1, 1.2))
    steps_s = [plan.predicted_s[0] * 1.1, plan.predicted_s[1] * 1.2]
    assert [job.expected.p50 for job in plan.run.jobs] == pytest.approx(steps_s, rel=0.02)
    widths = [job.expected.p95 / job.expected.p05 for job in plan.run.jobs]
    assert 1 < widths[0] < widths[1] < 1.2


def test_time_and_energy_left_follow_the_first_second(rehearse):
    plan = rehearse([f"{GPU_BOUND}:2"], "naive")
    plan.run_for(SETTLE_S + 2.0, (1.25, 1.25))
    left = plan.run.jobs[0].steps - plan.run.jobs[0].done
    left_s = left * plan.predicted_s[0] * 1.25
    seconds = plan.run.remaining.seconds
    assert seconds.p50 == pytest.approx(left_s, rel=0.02)
    assert 1 < seconds.p95 / seconds.p05 < 1.05
    assert plan.run.remaining.energy_j == pytest.approx(500.0 * left_s, rel=0.02)


def test_jobs_that_wait_for_their_turn_count_to_the_time_left(rehearse):
    plan = rehearse([f"{GPU_BOUND}:2"], "naive[1];naive[2]")
    plan.events.started_s = {1: 0.0}
    plan.run_for(SETTLE_S + 2.0, (1.0, 1.0))
    first, second = plan.run.jobs
    first_s = (first.steps - first.done) * plan.predicted_s[0]
    assert plan.run.remaining.seconds.p50 == pytest.approx(
        first_s + second.steps * plan.predicted_s[1], rel=0.02
    )


def test_jobs_that_wait_in_a_queue_count_to_the_time_left(rehearse):
    plan = rehearse([f"{GPU_BOUND}:3"], "naive/2[3,1,2]")
    plan.events.started_s = {3: 0.0, 1: 0.0}
    both = plan.paced.expected(frozenset({1, 3}), {})[1].p50
    plan.predicted_s = [both] * 3
    plan.run_for(SETTLE_S + 2.0, (1.0, 1.0, 1.0))
    first, last = plan.run.jobs[0], plan.run.jobs[1]
    alone_s = plan.advisor.predict([GPU_BOUND], "serial").prediction.jobs[0].step_s.p50
    left_s = (first.steps - first.done) * both + last.steps * alone_s
    assert plan.run.remaining.seconds.p50 == pytest.approx(left_s, rel=0.02)


def test_what_is_left_of_a_job_that_ended_is_nothing(rehearse):
    plan = rehearse([f"{GPU_BOUND}:2"], "naive")
    plan.run_for(SETTLE_S + 2.0, (1.0, 1.0))
    both_s = plan.run.remaining.seconds.p50
    plan.events.ended = {1: (0, plan.now_s)}
    plan.run_for(0.5, (1.0, 1.0))
    assert plan.run.remaining.seconds.p50 < 0.8 * both_s


def test_a_pace_that_leaves_its_first_second_is_seen_and_a_steady_one_is_not(rehearse):
    plan = rehearse([GPU_BOUND, GPU_BOUND], "naive")
    plan.run_for(SETTLE_S + 15.0, (1.4, 1.4))  # far from the prediction, and steady
    assert [job.drifted for job in plan.run.jobs] == [False, False]
    plan.run_for(30.0, (1.4, 1.6))
    assert [job.drifted for job in plan.run.jobs] == [False, True]


def test_a_second_begins_again_when_a_job_ends(rehearse):
    plan = rehearse([GPU_BOUND, GPU_BOUND], "naive")
    plan.run_for(SETTLE_S + 2.0, (1.0, 1.0))
    plan.events.ended = {1: (0, plan.now_s)}
    plan.run_for(1.0, (1.0, 0.5))
    assert plan.run.first_s == {}
    plan.run_for(SETTLE_S + 1.0, (1.0, 0.5))
    assert plan.run.first_s == pytest.approx({2: 0.5 * plan.predicted_s[1]}, rel=0.02)


def test_the_host_is_as_predicted_if_its_jobs_are():
    profiles = [synthetic.profile(host_s=0.01, gpu_s=0.002), synthetic.profile(gpu_s=0.03)]
    assert infer_host_factor(profiles, [0.01, 0.03], [0.01, 0.03]) == 1


def test_a_slow_host_shows_in_host_bound_jobs_and_the_more_the_more_of_them_run():
    host, gpu = synthetic.profile(host_s=0.01, gpu_s=0.002), synthetic.profile(gpu_s=0.03)
    one, three = (infer_host_factor([host] * n, [0.01] * n, [0.013] * n) for n in (1, 3))
    assert 1 < one < three < 1.3
    assert 1 < infer_host_factor([gpu], [0.06], [0.078]) < one


def test_a_gpu_bound_job_keeps_its_pace_better_than_a_host_bound_one():
    host, gpu = synthetic.profile(host_s=0.01, gpu_s=0.002), synthetic.profile(gpu_s=0.03)
    widths = [each.p95 / each.p05 for each in (rest_of_run(gpu, 0.05), rest_of_run(host, 0.05))]
    assert widths == pytest.approx([1.04, 1.19], abs=0.01)


def test_a_plan_whose_jobs_have_no_length_has_no_time_left(rehearse):
    plan = rehearse([GPU_BOUND], "naive")
    endless = replace(plan.saved.jobs[0].profile.workload, examples_per_epoch=None)
    job = Job(replace(plan.saved.jobs[0].profile, workload=endless))
    plan.paced = PacedPlan(replace(plan.saved, jobs=(job,)), plan.advisor)
    plan.run_for(SETTLE_S + 2.0, (1.0,))
    assert plan.run.first_s
    assert plan.run.remaining is None
