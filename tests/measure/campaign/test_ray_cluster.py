import subprocess
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.measure.campaign.plans import PLAN
from tests.measure.shared.real_command import Started
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `cluster`")

SCRIPT = Path(__file__).with_name("two_nodes.py")


class TwoNodes(Started):
    """A Ray cluster of two nodes; `address` is how to reach it."""

    def __init__(self, folder):
        super().__init__(folder, SCRIPT)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = self.start(**pipes, TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0")
        self.address, self.second = self._process.stdout.readline().split()

    def lose_the_second(self):
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()

    def close(self):
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def cluster():
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        nodes = TwoNodes(folder)
        yield nodes
        nodes.close()
        nodes.assert_nothing_is_left()
        assert not list(nodes.folder.glob("advisor-*"))


@pytest.mark.exhaustive
def test_a_cluster_that_loses_a_node_does_all_runs_in_the_same_form(campaign, cluster):
    shared = campaign(PLAN)
    process = shared.start("--ray", cluster.address)
    said = ""
    while " ok, " not in said:
        said += process.stderr.readline()
    cluster.lose_the_second()
    said += process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert f"{cluster.second[:8]}-cpu is given up" in said
    runs = shared.runs()
    assert sorted(run.purpose for run in runs) == ["drawn"] * 3 + ["repeat"] + ["solo"] * 2
    assert all(run.ok and run.gpu == "cpu" and len(run.tenants[0].windows) == 3 for run in runs)
    assert len({run.provenance.command for run in runs}) == 1


def test_a_cluster_that_is_not_there_is_said_so(campaign):
    code, said = campaign(PLAN).finish("--ray", "auto", RAY_ADDRESS="")
    assert code == 4
    assert "Is the cluster up?" in said


def test_cores_and_gpus_of_a_cluster_are_not_chosen_by_number(campaign):
    code, said = campaign(PLAN).finish("--ray", "auto", "--cores", "0")
    assert code == 2
    assert "leave out --devices and --cores" in said
