"""A Ray cluster of two nodes on this machine, as long as stdin is open.

Says on stdout the cluster's address and the second node's id, and kills that node when told to.
"""

import sys

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 * 2**20}


def main():
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    second = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    print(cluster.address, second.node_id, flush=True)
    if sys.stdin.readline():
        cluster.remove_node(second, allow_graceful=False)
        sys.stdin.readline()
    cluster.shutdown()


if __name__ == "__main__":
    main()
