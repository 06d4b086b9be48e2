"""The ways in which jobs share one GPU, as values, and the words that name them.

``serial``, ``naive``, ``mps``, ``mps=43,57`` (limits in per cent, one for each job) and
``mig=3g.71gb,4g.71gb@0`` (an instance for each job, ``@start`` in memory slices if it matters).

These forms name jobs by their numbers from 1, in the order in which they were given:

* ``mig=4g.71gb@0[1]+3g.71gb@4[2,3]/mps=50,50``: several jobs on an instance, under ``/naive``
  (the default) or ``/mps``, with limits in per cent of its SMs, or ``/serial``: one after another;
* ``mig=7g.141gb@0/ci=3c[1]+4c[2]``: compute instances with SMs of their own and one memory
  (``mig=`` may be left out);
* ``naive[1,2];mps[3]``: one group of jobs after another, each with a sharing of its own;
* ``mps/2[3,1,2]``: a queue in this order, as ``mps/2`` is in the order in which they were given: at
  most two jobs at once, the next starts when one ends. It may be one of several groups.
"""

from advisor.sharing.modes import (
    SHARED_MODES,
    Arrangement,
    Concurrent,
    Group,
    Hybrid,
    Instance,
    Mig,
    Mode,
    Mps,
    Naive,
    Part,
    PartitionSharing,
    Phases,
    Place,
    Queue,
    Serial,
    SharedPartition,
    Sharing,
    one_job_each,
)
from advisor.sharing.notation import parse_sharing

__all__ = [
    "SHARED_MODES",
    "Arrangement",
    "Concurrent",
    "Group",
    "Hybrid",
    "Instance",
    "Mig",
    "Mode",
    "Mps",
    "Naive",
    "Part",
    "PartitionSharing",
    "Phases",
    "Place",
    "Queue",
    "Serial",
    "SharedPartition",
    "Sharing",
    "one_job_each",
    "parse_sharing",
]
