"""Campaigns: the plan as a file, and the command on two runners that share the CPU."""

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.errors import InvalidInput
from advisor.measure.planned_runs import Count, read_campaign
from advisor.workload.store import read_profile, read_runs
from tests.measure.campaign.plans import OF_A_GPU, PLAN, written
from tests.measure.shared.real_command import Started
from tests.ray_nodes import NEEDS_RAY, cluster
from tests.refusals import refused
from tests.waiting import PATIENCE_S

__all__ = ["cluster"]


class Campaign(Started):
    """``advisor campaign`` with runners that share the CPU.

    `words` come after its name.

    Args:
        folder: As `Started` has it.
        plan: The text of the plan.
    """

    def __init__(self, folder, plan):
        self.out, self.profiles = Path(folder) / "out", Path(folder) / "profiles"
        files = ("--out", self.out, "--profiles", self.profiles)
        self.words = (written(Path(folder), plan), *files, "--device", "cpu,cpu")
        super().__init__(folder, "-m", "advisor", "campaign", *self.words)

    def runs(self):
        """All runs in the folder."""
        return [run for path in sorted(self.out.glob("*.jsonl")) for run in read_runs(path)]


@pytest.fixture
def campaign():
    """Makes the command; whatever a failed test leaves is ended."""
    made = []
    with TemporaryDirectory(dir="/tmp") as folder:

        def make(plan):
            made.append(Campaign(folder, plan))
            return made[-1]

        yield make
        for each in made:
            each.clear()


LONG = PLAN.replace("window_s = 0.1", "window_s = 60")
FEW = """
gpu = "cpu"
seed = 7
small = ["mlp-toy-bs32"]
solo_every = 0
timing = {settle_s = 0.1, window_s = 0.1}

[[runs]]
id = "alone"
sharing = "naive"
purpose = "chosen"
workloads = ["mlp-toy-bs32"]

[[runs]]
id = "whole"
sharing = "naive[1,2];serial[3]"
purpose = "completion"
workloads = ["mlp-toy-bs32", "mlp-toy-bs64", "mlp-toy-bs128"]
steps = [10, 150, 5]
"""
PROFILED = """
gpu = "cpu"
seed = 7
small = ["mlp-toy-bs32"]
solo_every = 0
profile = {missing = true}
timing = {settle_s = 0.1, window_s = 0.1}

[[runs]]
id = "alone"
sharing = "naive"
purpose = "solo"
workloads = ["mlp-toy-bs32"]
"""


def runners(command):
    """The pids of its runners."""
    return [
        pid
        for pid in command.processes()
        if b"advisor.measure.runners:serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_campaign_runs_and_does_nothing_twice(campaign, capsys):
    shared = campaign(FEW)
    code, said = shared.finish()
    assert code == 0, said
    alone, whole = runs = sorted(shared.runs(), key=lambda run: run.id)
    assert (alone.purpose, whole.purpose) == ("chosen", "completion")
    assert (alone.ok, whole.ok, whole.shows_pace) == (True, True, False)
    assert [len(tenant.windows) for tenant in alone.tenants] == [3]
    assert alone.tenants[0].memory.allocated_mib > 0
    assert (alone.mps_clients, alone.power_w, alone.counters) == (0, None, None)

    done = whole.completion
    assert (done.steps, done.energy_j, len(done.pauses_s)) == ((10, 150, 5), None, 1)
    assert done.began_s[:2] == (0.0, 0.0)
    assert 0 < done.ended_s[0] < done.ended_s[1] <= done.began_s[2] < done.ended_s[2]
    assert done.ended_s[2] == done.makespan_s
    assert [len(tenant.windows) for tenant in whole.tenants] == [1, 2, 1]
    for tenant, steps, began_s, ended_s in zip(
        whole.tenants, done.steps, done.began_s, done.ended_s, strict=True
    ):
        assert sum(window.steps for window in tenant.windows) == pytest.approx(steps)
        assert sum(each.seconds for each in tenant.windows) == pytest.approx(ended_s - began_s)
    assert len({run.provenance.command for run in runs}) == 1
    assert runs[0].provenance.command.startswith("advisor campaign plan.toml")
    shared.assert_nothing_is_left()

    assert refused("campaign", shared.words, capsys)[0] == 0
    assert len(shared.runs()) == len(runs)


@pytest.mark.exhaustive
def test_what_has_no_profile_is_profiled_first_and_once(campaign):
    shared = campaign(PROFILED)
    code, said = shared.finish()
    assert code == 0, said
    assert read_profile(shared.profiles / "mlp-toy-bs32.json").windows
    assert "profile of" not in shared.finish()[1]


@pytest.mark.exhaustive
def test_a_runner_that_is_killed_is_replaced_and_its_run_is_done_again(campaign):
    shared = campaign(PLAN.replace("settle_s = 0.1", "settle_s = 3"))
    process = shared.start()
    shared.wait_for_tenants(2)
    os.kill(runners(shared)[0], signal.SIGKILL)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert sorted(run.id for run in shared.runs() if run.purpose == "drawn") == [
        f"plan-drawn-00{number}" for number in range(3)
    ]
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_however_a_campaign_is_ended_nothing_of_it_stays(campaign, how):
    shared = campaign(LONG)
    process = shared.start()
    shared.wait_for_tenants(3)
    process.send_signal(how)
    code = process.wait(PATIENCE_S)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    shared.assert_nothing_is_left()


@pytest.mark.parametrize(
    "words",
    [
        ("--device", "cpu,0"),
        ("--device", "0,"),
        ("--cores", "x"),
        ("--ray", "auto", "--cores", "0"),
    ],
)
def test_words_that_make_no_sense_are_wrong_use(tmp_path, words, capsys):
    files = ("--out", tmp_path / "out", "--profiles", tmp_path / "profiles")
    code, said = refused("campaign", [written(tmp_path, PLAN), *files, *words], capsys)
    assert (code, words[-2] in said) == (2, True)


def test_a_plan_says_what_is_drawn_from_what(tmp_path):
    campaign = read_campaign(written(tmp_path, OF_A_GPU, "third.toml"))
    assert (campaign.name, campaign.prefix) == ("third", "third-")
    assert campaign.degrees[2]["naive"] == Count(same=3, mixed=4)
    assert campaign.degrees[4] == {"equal": Count(same=2, mixed=0)}
    assert [each.name for each in campaign.large] == ["dlrm-29gb-bs128"]
    assert campaign.equal_limits == {2: (43, 50), 4: (28,)}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("sede = 1", "seed?"),
        ('seed = "7"', "seed"),
        ('gpu = "h900"', "h900"),
        ('small = ["no-such-bs1"]', "no-such-bs1"),
        ('small = ["mlp-toy-bs32", "mlp-toy-bs32"]', "twice"),
        ('include = "w.toml"', "either included or listed"),
        ("solo_every = 1.5", "solo_every"),
        ("limits = [0]", "limits"),
        ("degrees = {1 = {}}", "degrees"),
        ("degrees = {2 = {mps = {some = 1}}}", "degrees.2.mps.some"),
        ("timing = {window_s = 0}", "window_s"),
        ('profile = {known = ["absent"]}', "absent' is not a folder"),
        (
            'runs = [{id = "a", sharing = "mps", purpose = "chosen", '
            'workloads = ["mlp-toy-bs32"]}]',
            "run 'a'",
        ),
        ("gpu = [", "Correct the file"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_file_and_key(tmp_path, line, named):
    key = line.partition(" ")[0]
    rest = "\n".join(
        each for each in PLAN.split("[degrees.2]")[0].splitlines() if not each.startswith(f"{key} ")
    )
    path = written(tmp_path, f"{rest}\n{line}\n")
    with pytest.raises(InvalidInput) as refusal:
        read_campaign(path)
    assert str(path) in str(refusal.value)
    assert named in str(refusal.value)


@pytest.mark.exhaustive
@NEEDS_RAY
def test_a_cluster_that_loses_a_node_does_all_runs_in_the_same_form(campaign, cluster):
    shared = campaign(PLAN)
    process = shared.start("--ray", cluster.address)
    said = ""
    while " ok, " not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    cluster.lose_the_second()
    said += process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert f"{cluster.second[:8]}-cpu is given up" in said
    runs = shared.runs()
    assert sorted(run.purpose for run in runs) == ["drawn"] * 3 + ["repeat"] + ["solo"] * 2
    assert all(run.ok and run.gpu == "cpu" and len(run.tenants[0].windows) == 3 for run in runs)
    assert len({run.provenance.command for run in runs}) == 1
