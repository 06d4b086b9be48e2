"""How good plans for many jobs on several GPUs are, beside greedy ones, and how soon they come.

    python benchmarks/many_jobs.py [SECONDS]

Shipped profiles of an H200, each as often as needed, of 10 min to an hour alone, drawn by a seed;
everything is compiled and imported before the first time is taken. *Greedy* is the best of batches
of jobs under MPS, the longest first, as long as a batch may fit; its time is not limited. Nothing
here is a test.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter

from advisor.api import Advisor
from advisor.hardware.catalogue import gpu
from advisor.plan import ObjectiveName
from advisor.plan.copies_search import copies_that_pay
from advisor.plan.fleet_plan import FleetPlan, plan_fleet
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.rules import FitsMemory
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import Mps, Serial
from advisor.workload.job import Job
from advisor.workload.store import load_profile, profile_paths

GPU = "h200-141gb"
AIMS: tuple[ObjectiveName, ...] = (
    "makespan", "mean-completion", "throughput", "energy", "deadlines",
)  # fmt: skip
# Jobs, how many of them are different, and GPUs.
SIZES = (
    (12, 12, 1), (16, 16, 1), (24, 24, 1), (24, 24, 2), (24, 24, 4), (24, 6, 4), (48, 48, 4),
    (200, 200, 16),
)  # fmt: skip
LENGTHS_S, DEADLINES_S = (600.0, 3600.0), (3600.0, 14_400.0)
# Jobs in a batch of the greedy plans.
BATCHES = (2, 3, 4, 6, 8)


def drawn(jobs: int, different: int) -> list[Job]:
    """So many jobs of known length, of which so many are different."""
    draw = random.Random(1)
    known = [load_profile(name, GPU) for name in sorted(profile_paths(GPU))]
    timed = [each for each in known if each.workload.steps_per_epoch]
    chosen = draw.sample(timed, min(different, len(timed)))
    chosen += draw.choices(timed, k=different - len(chosen))
    found = []
    for each in chosen:
        epoch_s = (each.workload.steps_per_epoch or 1) * each.step_s
        length_s, due_s = draw.uniform(*LENGTHS_S), draw.uniform(*DEADLINES_S)
        found.append(Job(each, epochs=length_s / epoch_s, deadline_s=due_s))
    return (found * jobs)[:jobs]


def timed(jobs: list[Job], terms: FleetTerms, predictor: Predicts) -> tuple[float, FleetPlan]:
    """Seconds of a search with no prediction remembered from the one before."""
    began_s = perf_counter()
    found = plan_fleet(jobs, gpu(GPU), predictor, terms)
    return perf_counter() - began_s, found


def greedy_s(jobs: Sequence[Job], gpus: int, predictor: Predicts) -> float:
    """The least makespan of batches under MPS, each on the GPU that is free first."""
    longest = sorted(jobs, key=lambda job: -(job.work_steps or 0.0) * job.profile.step_s)
    asked, found = CachingPredictor(predictor), []
    for most in BATCHES:
        free_s = [0.0] * gpus
        for batch in batches(longest, most, asked):
            way = Mps() if len(batch) > 1 else Serial()
            free_s[free_s.index(min(free_s))] += forecast(Mixes(batch, asked), way).makespan_s or 0
        found.append(max(free_s))
    return min(found)


def batches(jobs: Sequence[Job], most: int, predictor: Predicts) -> Iterator[list[Job]]:
    """Jobs in this order, a new batch where one is full or whatever does not fit."""
    fits, batch = FitsMemory(gpu(GPU)), list(jobs[:1])
    for job in jobs[1:]:
        larger = [*batch, job]
        if len(larger) > most or fits.broken(Mixes(larger, predictor).whole(Mps())):
            yield batch
            larger = [job]
        batch = larger
    yield batch


def main() -> None:
    predictor = Advisor(GPU).uncalibrated
    limit_s = float(sys.argv[1]) if sys.argv[1:] else FleetTerms().limit_s
    timed(drawn(3, 3), FleetTerms(), predictor)  # compiles, and imports the solver
    print("jobs  different  GPUs  objective        seconds       cost  greedy    gap  predicted")
    for jobs, different, gpus in SIZES:
        for aim in AIMS if (jobs, different, gpus) == (24, 24, 4) else AIMS[:1]:
            some = drawn(jobs, different)
            terms = FleetTerms(objective=aim, gpus=gpus, limit_s=limit_s)
            seconds, found = timed(some, terms, predictor)
            search = found.search
            times = greedy_s(some, gpus, predictor) / search.cost if aim == "makespan" else None
            greedy = "" if times is None else f"{times:.3f}x"
            gap = "" if search.gap is None else f"{search.gap:.1%}"
            print(f"{jobs:4}  {different:9}  {gpus:4}  {aim:15}  {seconds:7.1f}  "
                  f"{search.cost:9.5g}  {greedy:>6}  {gap:>5}  {search.predicted:9}",
                  flush=True)  # fmt: skip
    job = drawn(1, 1)[0]
    began_s = perf_counter()
    copies = copies_that_pay(job, gpu(GPU), predictor)
    print(f"{job.name}:auto  {perf_counter() - began_s:.1f} s, {copies.pay} of {copies.fit} pay")


if __name__ == "__main__":
    main()
