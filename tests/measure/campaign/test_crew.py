import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.campaign.crew import Crew
from advisor.measure.campaign.ledger import CampaignProgress, Ledger
from advisor.measure.campaign.steadiness import Steadiness
from advisor.measure.campaign.task_queue import TaskQueue
from advisor.workload.measured import Memory, Window
from advisor.workload.run import Run, Tenant
from advisor.workload.stored_runs import read_runs
from tests.measure.campaign.test_task_queue import many
from tests.synthetic import PROVENANCE


class Runner:
    """Measures at once, and fails as it is told.

    Args:
        name: Of its device.
        outcomes: How tenants end, or what is raised, a run each; then all is well.
        starts: How often it can be started anew.
    """

    def __init__(self, name, outcomes=(), starts=99):
        self.name = name
        self.started = 0
        self._outcomes = list(outcomes)
        self._starts = starts

    def start(self):
        self.started += 1
        if self.started > self._starts:
            raise AdvisorError("its GPU has fallen off the bus")

    def stop(self):
        pass

    def measured(self, mix):
        outcome = self._outcomes.pop(0) if self._outcomes else "ok"
        if isinstance(outcome, Exception):
            raise outcome
        return run(mix, outcome)


def run(mix, outcome):
    tenants = tuple(
        Tenant(
            workload=each, outcome=outcome, detail=None if outcome == "ok" else "gone",
            windows=(Window(1.0, 10.0),) if outcome == "ok" else (),
            memory=Memory(allocated_mib=1, reserved_mib=1), cores=(0,), sms=None,
        )
        for each in mix.workloads
    )  # fmt: skip
    return Run(
        id=mix.id, gpu="cpu", sharing=str(mix.sharing), purpose=mix.purpose, repeats=None,
        tenants=tenants, mps_clients=0, power_w=None, counters=None, provenance=PROVENANCE,
    )  # fmt: skip


@pytest.fixture
def work(tmp_path):
    """Lets runners do so many runs; what is recorded, by file."""

    def do(count, *runners, out=tmp_path):
        steadiness = Steadiness([])
        queue = TaskQueue(many(count), [], {}, [each.name for each in runners])
        ledger = Ledger(out, "c", out / "profiles", steadiness)
        Crew(queue, ledger, CampaignProgress(count, len(runners), None, steadiness)).work(runners)
        return {path.name: read_runs(path) for path in tmp_path.glob("*.jsonl")}

    return do


def test_all_runs_are_recorded_once_each_beside_its_device(work):
    files = work(30, Runner("0"), Runner("1"))
    assert set(files) <= {"c-0.jsonl", "c-1.jsonl"}
    names = [run.id for runs in files.values() for run in runs]
    assert sorted(names) == sorted(mix.id for mix in many(30))


def test_a_run_whose_tenant_dies_is_done_again_by_a_fresh_runner(work):
    runner = Runner("0", ["died", "died"])
    (runs,) = work(4, runner).values()
    assert len(runs) == 4
    assert all(run.ok for run in runs)
    assert runner.started == 2


def test_a_tenant_that_dies_every_time_is_an_outcome(work):
    (runs,) = work(1, Runner("0", ["died"] * 3)).values()
    assert [run.tenants[0].outcome for run in runs] == ["died"]


def test_a_lack_of_memory_is_an_outcome_at_once(work):
    runner = Runner("0", ["out-of-memory"])
    (runs,) = work(1, runner).values()
    assert [run.tenants[0].outcome for run in runs] == ["out-of-memory"]
    assert runner.started == 0


def test_a_run_that_ends_its_runner_three_times_is_given_up(work, tmp_path, capsys):
    runner = Runner("0", [AdvisorError("killed")] * 3)
    (runs,) = work(3, runner).values()
    assert len(runs) == 2
    assert "run-0: killed (3 times)" in (tmp_path / "c-failed.log").read_text()
    assert "1 failed" in capsys.readouterr().err
    assert runner.started == 3


def test_what_nobody_can_do_is_not_tried_again(work, tmp_path):
    runner = Runner("0", [InvalidInput("no such model")])
    work(2, runner)
    assert "run-0: no such model" in (tmp_path / "c-failed.log").read_text()
    assert runner.started == 0


def test_the_others_do_what_a_runner_that_cannot_be_replaced_had(work, capsys):
    files = work(40, Runner("0", [AdvisorError("lost")], starts=0), Runner("1"))
    assert sum(map(len, files.values())) == 40
    said = capsys.readouterr().err
    assert "lost" not in said or "runner 0 is given up, the others do its runs" in said


def test_a_campaign_without_any_runner_left_has_failed(work):
    with pytest.raises(AdvisorError, match="every runner was given up, and 4 runs are left"):
        work(4, Runner("0", [AdvisorError("lost")], starts=0))


def test_a_folder_that_cannot_be_written_ends_the_campaign(work, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AdvisorError, match="Choose another path"):
        work(4, Runner("0"), out=tmp_path / "file" / "out")
