"""Jobs over time: what the others do when one ends, queues, and what changing a partition costs."""

from typing import Literal

StartPolicy = Literal["first-come", "shortest-first", "best-fit"]
"""Which job starts next, and where; `advisor.simulation.queues` has a queue for each."""

RoundPolicy = Literal["max-min", "finish-time", "least-attained"]
"""Which jobs run in each round; `advisor.simulation.policies`."""

START_CPU_S = 3.0
"""CPU seconds of the start of a process, which imports torch and opens CUDA: a guess. Importing
torch's CPU build alone took 1.1 s of a core."""

START_CPU_ERROR = 2.0
"""Factor by which a start may take more CPU seconds, or fewer: a choice."""

Policy = Literal[StartPolicy, RoundPolicy]

ROUND_S = 360.0
"""Length of a round unless stated."""

PREEMPTION_S = 10.0
"""Seconds that a stopped job loses unless stated: to start its process, as of a trial."""
