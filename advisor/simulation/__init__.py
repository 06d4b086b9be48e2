"""Jobs over time: what the others do when one ends, queues, and what changing a partition costs."""

from typing import Literal

Policy = Literal["first-come", "shortest-first", "best-fit"]
"""Which job starts next, and where; `advisor.simulation.queues` has a queue for each."""
