"""How fast many jobs are spread over GPUs, and how large the gap is then.

    python benchmarks/many_jobs.py

Shipped profiles of an H200, each as often as needed, of 10 min to an hour alone, drawn by a seed;
everything is compiled and imported before the first time is taken. Nothing here is a test.
"""

import random
from time import perf_counter

from advisor.gpu.catalogue import gpu
from advisor.planning.advice import predictor_of
from advisor.planning.copies import copies_that_pay
from advisor.planning.many_jobs import Spread, spread
from advisor.planning.plan import Objective, Predicts
from advisor.planning.terms import Terms
from advisor.workload.job import Job
from advisor.workload.store import load_profile, profile_paths

GPU = "h200-141gb"
AIMS: tuple[Objective, ...] = (
    "makespan", "mean-completion", "throughput", "energy", "fairness", "deadlines",
)  # fmt: skip
# Jobs, how many of them are different, and GPUs.
SIZES = ((12, 12, 1), (24, 24, 1), (24, 24, 4), (24, 6, 4), (48, 48, 8))
LENGTHS_S, DEADLINES_S = (600.0, 3600.0), (3600.0, 14_400.0)


def drawn(jobs: int, different: int) -> list[Job]:
    """So many jobs of known length, of which so many are different."""
    draw = random.Random(1)
    known = [load_profile(name, GPU) for name in sorted(profile_paths(GPU))]
    chosen = draw.sample([each for each in known if each.workload.steps_per_epoch], different)
    found = []
    for each in chosen:
        epoch_s = (each.workload.steps_per_epoch or 1) * each.step_s
        length_s, due_s = draw.uniform(*LENGTHS_S), draw.uniform(*DEADLINES_S)
        found.append(Job(each, epochs=length_s / epoch_s, deadline_s=due_s))
    return (found * jobs)[:jobs]


def timed(jobs: list[Job], terms: Terms, predictor: Predicts) -> tuple[float, Spread]:
    """Seconds of a search with no prediction remembered from the one before."""
    began_s = perf_counter()
    found = spread(jobs, gpu(GPU), predictor, terms)
    return perf_counter() - began_s, found


def main() -> None:
    predictor = predictor_of(GPU)
    timed(drawn(3, 3), Terms(), predictor)  # compiles, and imports the solver
    print("jobs  different  GPUs  objective        seconds  gap    faster  groups  predicted")
    for jobs, different, gpus in SIZES:
        for aim in AIMS if (jobs, different) == (24, 24) else AIMS[:1]:
            seconds, found = timed(
                drawn(jobs, different), Terms(objective=aim, gpus=gpus), predictor
            )
            faster = (found.serial_s or 0.0) / found.makespan_s.p50 if found.makespan_s else 0.0
            search = found.found
            print(f"{jobs:4}  {different:9}  {gpus:4}  {aim:15}  {seconds:7.1f}  "
                  f"{search.gap:5.1%}  {faster:5.2f}x  {search.groups:6}  {search.foretold:9}",
                  flush=True)  # fmt: skip
    job = drawn(1, 1)[0]
    began_s = perf_counter()
    copies = copies_that_pay(job, gpu(GPU), predictor)
    print(f"{job.name}:auto  {perf_counter() - began_s:.1f} s, {copies.pay} of {copies.fit} pay")


if __name__ == "__main__":
    main()
