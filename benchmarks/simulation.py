"""The cost of simulating many jobs over time: the event loop and its queues, without replays.

    python benchmarks/simulation.py [JOBS]

Jobs of six kinds, 100,000 by default, share 64 GPUs, with and without the host's cores limited.
The table has the processor's seconds, which other processes change little. Nothing here is a test.
"""

import random
import sys
from functools import cache
from time import process_time

from advisor.simulation.events import Pace, PlacedJobs, Task, run
from advisor.simulation.queues import BestFit, GpuCapacity, InOrder, JobQueue

GPUS, PLACES, KINDS = 64, 4, 6
# Jobs come so often that about 40 GPUs run one, and that number changes with every event.
BETWEEN_S, MEAN_STEPS = 3.0, 128.0
# GPUs whose jobs the host's cores suffice for; more GPUs take as much longer.
ENOUGH_FOR = 32


def tasks(count: int) -> list[Task]:
    """Return jobs that arrive at random."""
    random.seed(7)
    now_s, drawn = 0.0, []
    for _ in range(count):
        now_s += random.expovariate(1 / BETWEEN_S)
        drawn.append(Task(random.expovariate(1 / MEAN_STEPS), now_s))
    return drawn


@cache
def pace(busy_gpus: int = 1) -> Pace:
    """Return a pace by which co-located jobs slow each other, and a full host all of them."""
    slowed = max(1.0, busy_gpus / ENOUGH_FOR)

    def speeds(seats: PlacedJobs) -> list[float]:
        return [1 / (1 + 0.1 * (job % KINDS) * (len(seats) - 1)) / slowed for job, _ in seats]

    return speeds


def queues(count: int) -> dict[str, JobQueue]:
    """Return an empty queue of each kind."""
    kinds = [job % KINDS for job in range(count)]
    places = (0,) * PLACES
    room = GpuCapacity(
        places,
        worth=lambda seats: sum(pace()(seats)),
        mix=lambda seats: tuple(sorted(kinds[job] for job, _ in seats)),
    )
    return {"first-come": InOrder(room), "best-fit": BestFit(room, kinds)}


def main(count: int) -> None:
    for cores, shared in (("enough cores", None), ("limited cores", pace)):
        for policy, queue in queues(count).items():
            drawn, began_s = tasks(count), process_time()
            history = run(drawn, pace(), queue, (GPUS,), shared)
            taken_s = process_time() - began_s
            print(
                f"{policy}, {cores:14} {taken_s:7.2f} s of a processor, "
                f"{len(history.stretches):,} stretches"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
