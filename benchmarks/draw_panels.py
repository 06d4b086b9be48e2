"""Draws job sets, each to be run in several ways, so that a choice among these can be scored.

    python benchmarks/draw_panels.py --seed 2029 --sets 40 --out benchmarks/panels

writes ``plan.toml`` for `advisor campaign`; called again with ``--passes 3``, it makes each run of
that plan three runs, in shuffled order. Every set runs naive, under MPS, and under MPS with an
equal part of the GPU for each; no prediction has a say in it. `benchmarks/recommend_panels.py`
adds what a model recommends. No set was run before, in any order, so no model can have learnt from
it.

One after another, a job runs as it does alone, whatever comes before or after it. So each workload
is measured alone once, between the shared runs, for all sets that it is in: the campaign's solo
runs, from which `advisor.validate.panels` tells the throughput of serial.
"""

import argparse
import json
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.writing import write_whole
from research.files import measured

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "panel-"
DEGREES = range(2, 9)
# Of the workloads, ordered by how busy they keep the GPU alone: from where to where a set's come,
# as shares. Sets of idle hosts and sets of full GPUs are where the choice matters most.
POOLS = ((0.0, 1.0), (0.0, 0.4), (0.0, 1.0), (0.6, 1.0))
# Every so many sets, one has copies.
COPIES_EVERY = 5

HEAD = """\
# Job sets run in several ways each, drawn by benchmarks/draw_panels.py with seed {seed}; what a
# model recommends is added by benchmarks/recommend_panels.py. Solo runs are how they run serially.
name = "panels"
gpu = "{gpu}"
seed = {seed}
prefix = "{prefix}"
solo_every = 1
solos_of_each = 1
small = [
{small}
]

[timing]
settle_s = 0.5
window_s = 0.7
windows = 3
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--gpu", default="h200-141gb")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prefix", default=PREFIX, help="of the ids of runs [panel-]")
    parser.add_argument("--passes", type=int, help="repeat the plan in --out so many times")
    asked = parser.parse_args()
    if asked.passes:
        plan = asked.out / "plan.toml"
        write_whole(plan, in_passes(plan.read_text(), asked.seed, asked.passes))
        return
    listed = tomllib.loads((ROOT / "benchmarks" / "workloads.toml").read_text())["small"]
    profiles, runs = measured(ROOT / "profiles" / asked.gpu)
    sets = list(drawn(Random(asked.seed), by_busy(listed, profiles), ran(runs), asked.sets))
    asked.out.mkdir(parents=True, exist_ok=True)
    write_whole(asked.out / "plan.toml", plan_text(asked.gpu, asked.seed, sets, asked.prefix))
    names = {name for jobs in sets for name in jobs}
    degrees = sorted(Counter(map(len, sets)).items())
    print(f"{len(sets)} sets of {len(names)} workloads; sets by number of jobs: {degrees}")


def by_busy(names: Sequence[str], profiles: Mapping[str, Profile]) -> list[str]:
    """`names` by how busy each keeps the GPU alone, least first."""
    return sorted(names, key=lambda name: (profiles[name].busy_share or 0.0, name))


def ran(runs: Sequence[Run]) -> set[tuple[str, ...]]:
    """Job sets that were run together, without what is drawn here and in `draw_completions`.

    What was drawn here was run twice; ids of the first time begin with ``first-``.
    """
    return {
        tuple(sorted(tenant.workload.name for tenant in run.tenants))
        for run in runs
        if not run.id.removeprefix("first-").startswith(PREFIX) and run.completion is None
    }


def drawn(
    random: Random, names: Sequence[str], before: Collection[tuple[str, ...]], sets: int
) -> Iterator[list[str]]:
    """So many sets, copies next to each other, none of them among those run `before`.

    Args:
        random: Decides.
        names: Workloads, the least busy first.
        before: Job sets, each sorted.
        sets: How many.
    """
    known = set(before)
    for number in range(sets):
        low, high = POOLS[number % len(POOLS)]
        pool = names[round(low * len(names)) : round(high * len(names))]
        degree = DEGREES[number % len(DEGREES)]
        kinds = (degree + 1) // 2 if number % COPIES_EVERY == 0 else degree
        while tuple(sorted(jobs := one(random, pool, degree, kinds))) in known:
            pass
        known.add(tuple(sorted(jobs)))
        yield jobs


def one(random: Random, pool: Sequence[str], degree: int, kinds: int) -> list[str]:
    """A set of `degree` jobs of so many different kinds out of `pool`."""
    chosen = random.sample(list(pool), kinds)
    copies = Counter(chosen) + Counter(random.choices(chosen, k=degree - kinds))
    return [name for name in chosen for _ in range(copies[name])]


def plan_text(gpu: str, seed: int, sets: Sequence[Sequence[str]], prefix: str = PREFIX) -> str:
    """The plan of a campaign that runs `sets`, those of one set after another."""
    small = "\n".join(f"    {json.dumps(name)}," for name in sorted({n for s in sets for n in s}))
    runs = (
        run_text(f"{prefix}{number:02}-{word}", sharing, jobs)
        for number, jobs in enumerate(sets)
        for word, sharing in ways(len(jobs)).items()
    )
    return HEAD.format(gpu=gpu, seed=seed, prefix=prefix, small=small) + "".join(runs)


def in_passes(plan: str, seed: int, passes: int) -> str:
    """`plan` with every run so many times, each time in another order; the first ids stay."""
    head, *runs = plan.rstrip("\n").split("\n[[runs]]\n")
    written = [head.rstrip("\n") + "\n"]
    for number in range(1, passes + 1):
        order = [tomllib.loads(run) for run in runs]
        Random(f"{seed} pass {number}").shuffle(order)
        for run in order:
            again = {"id": f"{run['id']}-{number}", "purpose": "repeat", "repeats": run["id"]}
            entry = run if number == 1 else run | again
            lines = (f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
            written.append("".join(lines))
    return "\n[[runs]]\n".join(written)


def ways(degree: int) -> dict[str, str]:
    """How each set of `degree` jobs is run, whatever anybody predicts, by the ends of ids."""
    equal = ",".join([str(round(100 / degree))] * degree)
    return {"naive": "naive", "mps": "mps", "equal": f"mps={equal}"}


def run_text(
    name: str, sharing: str, jobs: Sequence[str], steps: Sequence[int] | None = None
) -> str:
    """One run of advice, or of whole jobs, as a plan has it; JSON writes strings as TOML does."""
    purpose = "validation" if steps is None else "completion"
    return (
        f"\n[[runs]]\nid = {json.dumps(name)}\nsharing = {json.dumps(sharing)}\n"
        f'purpose = "{purpose}"\nworkloads = {json.dumps(list(jobs))}\n'
        + (f"steps = {json.dumps(list(steps))}\n" if steps is not None else "")
    )


if __name__ == "__main__":
    main()
