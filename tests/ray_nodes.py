"""A Ray cluster of two nodes on this machine, one of which a test can kill."""

import json
import subprocess
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import pytest

from tests.measure.shared.real_command import Started
from tests.waiting import PATIENCE_S

NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`")

# A cluster of two nodes, as long as stdin is open; the first line read there kills one of them.
TWO_NODES = """
import json
import sys
from ray.cluster_utils import Cluster
resources = json.loads(sys.argv[1])
node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 * 2**20, "resources": resources}
cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
second = cluster.add_node(**node)
cluster.wait_for_nodes()
print(cluster.address, second.node_id, flush=True)
if sys.stdin.readline():
    cluster.remove_node(second, allow_graceful=False)
    sys.stdin.readline()
cluster.shutdown()
"""


class TwoNodes(Started):
    """A Ray cluster of two nodes with custom `resources`; `address` is how to reach it."""

    def __init__(self, folder, resources, **environment):
        super().__init__(folder, "-c", TWO_NODES, json.dumps(resources))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment |= {"TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        self._process = self.start(**pipes, **environment)
        self.address, self.second = self._process.stdout.readline().split()

    def lose_the_second(self):
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()

    def close(self):
        self._process.communicate(timeout=PATIENCE_S)
        self.assert_nothing_is_left()


@pytest.fixture
def cluster():
    """Two nodes, each with a GPU of the catalogue's H200 in name alone."""
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        nodes = TwoNodes(
            folder,
            {"advisor:h200-141gb": 1},
            XDG_STATE_HOME=f"{folder}/state",
            XDG_DATA_HOME=f"{folder}/data",
        )
        yield nodes
        nodes.close()
        assert not list(nodes.folder.glob("advisor-*"))
