"""Plans for many jobs beside the obvious ones: by how much is each of these slower?

    python -m benchmarks.many_jobs 24/1 48/4 200/16 --seeds 5

Jobs and their lengths are drawn by the seed from the profiles of an H200. All plans are predicted
in full, and prints are ratios of makespans: obvious plan over the plan of `recommend --gpus`.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from heapq import heapreplace
from random import Random

from advisor.api import Advisor
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.caching_predictor import in_one_order
from advisor.sharing import Mps, Serial
from advisor.simulation.events import PlacedJobs, Task, run
from advisor.simulation.queues import GpuCapacity, InOrder
from advisor.workload.job import Job
from advisor.workload.store import profile_paths

GPU = "h200-141gb"
LENGTHS_S = (600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10_800, 14_400)


def drawn_jobs(advisor: Advisor, jobs: int, seed: int) -> list[Job]:
    """Draw jobs that take one of `LENGTHS_S` alone."""
    draw, names, drawn = Random(seed), sorted(profile_paths(GPU)), list[Job]()
    while len(drawn) < jobs:
        profile = advisor.find_profile(draw.choice(names))
        if epoch_s := Job(profile).alone_s:
            drawn.append(Job(profile, epochs=draw.choice(LENGTHS_S) / epoch_s))
    return drawn


class Obvious:
    """Makespans of obvious plans, in seconds."""

    def __init__(self, advisor: Advisor, jobs: Sequence[Job], gpus: int) -> None:
        self._predictor, self._gpus = in_one_order(advisor.predictor), gpus
        self._longest = sorted(jobs, key=lambda job: -(job.alone_s or 0))
        self._busiest = sorted(jobs, key=lambda job: -_busy(job) * (job.alone_s or 0))

    def makespans_s(self) -> Iterator[tuple[str, float]]:
        """Yield name and makespan of each plan."""
        yield "one at a time", self._of_groups([[job] for job in self._longest])
        for size in (2, 3, 4, 6):
            yield f"longest first, {size}", self._of_groups(self._batches(self._longest, size))
        for size in (2, 3, 4):
            yield f"busiest first, {size}", self._of_groups(self._batches(self._busiest, size))
        for load in (1.2, 1.8, 2.5):
            yield f"first fit, {load}", self._of_groups(self._first_fit(load))
        for at_once in (2, 3, 4):
            yield f"queue, {at_once}", self._queue_s(at_once)

    def _fits(self, jobs: Sequence[Job]) -> bool:
        mix = self._predictor.predict([job.profile for job in jobs], Mps())
        return mix.oom_probability <= MAX_OOM_PROBABILITY

    def _of_groups(self, groups: Sequence[Sequence[Job]]) -> float:
        free_s, runs_s = [0.0] * self._gpus, []
        for group in groups:
            sharing = Mps() if len(group) > 1 else Serial()
            makespan = forecast(Mixes(group, self._predictor), sharing).makespan_interval_s
            assert makespan is not None
            runs_s.append(makespan.p50)
        for each_s in sorted(runs_s, reverse=True):
            heapreplace(free_s, free_s[0] + each_s)
        return max(free_s)

    def _batches(self, order: Sequence[Job], size: int) -> list[list[Job]]:
        batches: list[list[Job]] = []
        for job in order:
            if batches and len(batches[-1]) < size and self._fits([*batches[-1], job]):
                batches[-1].append(job)
            else:
                batches.append([job])
        return batches

    def _first_fit(self, load: float) -> list[list[Job]]:
        groups: list[list[Job]] = []
        for job in self._longest:
            for group in groups:
                busy = sum(map(_busy, group)) + _busy(job)
                if len(group) < 8 and busy <= load and self._fits([*group, job]):
                    group.append(job)
                    break
            else:
                groups.append([job])
        return groups

    def _queue_s(self, at_once: int) -> float:
        order = self._longest

        def pace(seats: PlacedJobs) -> list[float]:
            jobs = [order[seat.job] for seat in seats]
            sharing = Mps() if len(jobs) > 1 else Serial()
            mix = self._predictor.predict([job.profile for job in jobs], sharing)
            return [1 / job.paced_s.p50 for job in mix.jobs]

        room = GpuCapacity(
            (0,) * at_once,
            lambda seats: len(seats) == 1 or self._fits([order[seat.job] for seat in seats]),
        )
        tasks = [Task(job.work_steps or 1.0) for job in order]
        return run(tasks, pace, InOrder(room), (self._gpus,)).makespan_s


def _busy(job: Job) -> float:
    return job.profile.busy_share or 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", metavar="JOBS/GPUS")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    advisor = Advisor(GPU)
    for size in options.sizes:
        jobs, gpus = map(int, size.split("/"))
        for seed in range(1, options.seeds + 1):
            drawn, began_s = drawn_jobs(advisor, jobs, seed), time.process_time()
            plan = advisor.recommend(drawn, gpus=gpus).best
            took_s = time.process_time() - began_s
            assert plan.makespan_s is not None
            slower = {
                name: round(makespan_s / plan.makespan_s, 4)
                for name, makespan_s in Obvious(advisor, drawn, gpus).makespans_s()
            }
            best = min(slower, key=slower.__getitem__)
            print(
                json.dumps(
                    {
                        "size": size,
                        "seed": seed,
                        "cpu_s": round(took_s, 1),
                        "best obvious": best,
                        "ratio": slower[best],
                        "all": slower,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
