"""Ask the solver thousands of random questions, and the program that tries every plan.

``python -m tests.plan.search.thousands MINUTES [FIRST_SEED]`` says how many of them it asked of
each number of jobs and objective, and which of them the solver did not answer best.
"""

import sys
from collections import Counter
from itertools import count
from time import monotonic

from tests.plan.search.cases import A30, OBJECTIVES, case

# Questions of each number of jobs per round, so that each takes its part of the time.
A_ROUND = {2: 16, 3: 16, 4: 8, 5: 3, 6: 1}


def questions(first):
    """Seeds, numbers of jobs and objectives, without end."""
    for number in count():
        for jobs, each in A_ROUND.items():
            for objective in OBJECTIVES:
                for seed in range(first + number * each, first + (number + 1) * each):
                    yield seed, jobs, objective


def shortfall(asked):
    """What the best plan costs where it is not the one found; None where it is."""
    found, (least, _) = asked.found(), asked.least()
    return missed(asked, found, least) if found > least * (1 + 1e-6) else None


def shortfall_on_instances(asked):
    """Likewise, where plans with groups on instances one after another are tried too."""
    found, (least, _) = asked.found(), asked.least(phases_on_mig=True)
    return missed(asked, found, least) if abs(found / least - 1) > 1e-4 else None


def missed(asked, found, least):
    return f"{asked.gpu.key} {asked.level}: found {found:.6g}, best {least:.6g}"


def main(minutes, first=1000):
    ends_s = monotonic() + 60 * minutes
    answered, wrong = Counter(), 0
    for seed, jobs, objective in questions(first):
        if monotonic() > ends_s:
            break
        asked = case(seed, jobs, objective)
        answered[jobs, objective] += 1
        why = shortfall(asked)
        if asked.gpu is A30 and (jobs == 2 or (jobs == 3 and seed % 8 == 0)):  # more are too many
            why = why or shortfall_on_instances(asked.lasting())
        if why:
            wrong += 1
            print(f"case({seed}, {jobs}, {objective!r}): {why}", flush=True)
    for objective in OBJECTIVES:
        row = "  ".join(f"{jobs} jobs {answered[jobs, objective]:5}" for jobs in A_ROUND)
        print(f"{objective:16} {row}")
    print(f"{answered.total()} questions, {wrong} not answered with the best plan")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
