"""Draws runs that may or may not fit on a smaller card, so that the risk of it can be learnt.

    python benchmarks/oom_plans.py --seed 2028 --out benchmarks/oom

writes ``plans-0.json`` .. for ``python -m advisor.collocation``, and the same runs as ``plan.toml``
for `advisor campaign`. What the processes of a run are
expected to hold is between 0.85 and 1.15 of what the card has free, most often near 1.

With ``--alone`` each run is one job on a card that has less free than the job would hold and about
what it needs: whether the allocator can give up as much of its cache decides, as on a MIG slice.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random

from advisor.hardware.catalogue import Gpu, gpu
from advisor.hardware.gpu_partition import limit_shares
from advisor.prediction.fit.memory_fit import fit_context
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.memory import MPS_SERVER_MIB, Need, need
from advisor.workload.profile import Profile
from advisor.workload.store import load_profiles
from advisor.workload.stored_runs import load_runs

# As their drivers report them: an A30, an A100 of 40 GB, an H100 of 80 GB.
CAPACITIES_MIB = (24_576, 40_960, 81_559)
MODES = ("naive", "mps", "limits")
DEGREES = range(1, 9)
LIMITS = (14, 28, 43, 57, 71, 86)
LEAST, MOST, USUAL = 0.85, 1.15, 1.0
# How far what is expected may lie from what was drawn, as a share of the card.
TOLERANCE = 0.01
TRIES = 4000
# Share of its cache that a job alone has to give up: from none to more than it has. A smaller cache
# than this says nothing, for a GPU is not filled more exactly than that.
ALONE, LEAST_CACHE_MIB = (-0.1, 1.3), 200
# A step this long makes a workload half as likely: it loads and steps slowly.
SLOW_S = 0.05

Draw = tuple[str, list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=int, default=324)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--gpu", default="h200-141gb")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    lots = Lots(load_profiles(asked.gpu), gpu(asked.gpu))
    draw = drawn_alone if asked.alone else drawn
    plans = list(draw(Random(asked.seed), lots, asked.runs))
    asked.out.mkdir(parents=True, exist_ok=True)
    for shard in range(asked.shards):
        document = {"schema": 1, "gpu": asked.gpu, "plans": plans[shard :: asked.shards]}
        (asked.out / f"plans-{shard}.json").write_text(json.dumps(document, indent=1) + "\n")
    (asked.out / "plan.toml").write_text(as_toml(asked.gpu, asked.seed, plans))
    print(f"{len(plans)} runs in {asked.shards} files")


def as_toml(gpu_key: str, seed: int, plans: Sequence[dict]) -> str:
    """The plans as a campaign's chosen runs; what they hold is written alike in JSON and TOML."""
    head = f'gpu = "{gpu_key}"\nseed = {seed}\n'
    runs = (
        "\n[[runs]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in each.items())
        for each in plans
    )
    return head + "".join(runs)


class Lots:
    """What runs are drawn from: profiles, and what their processes hold on a GPU."""

    def __init__(self, profiles: Mapping[str, Profile], on: Gpu) -> None:
        self._profiles = {
            name: each for name, each in profiles.items()
            if not each.workload.loader_workers and each.workload.execution == "eager"
        }  # fmt: skip
        self._gpu = on
        self._context = fit_context(profiles, shared_runs(profiles, load_runs(on.key), on), on)
        self.names = sorted(self._profiles)
        self.weights = [1 / (1 + self._profiles[name].step_s / SLOW_S) for name in self.names]

    def need(self, name: str) -> Need:
        """What one process of a workload takes, alone and without MPS."""
        return need(self._profiles[name], self._context, under_mps=False)

    @property
    def reserved_mib(self) -> int:
        return self._gpu.reserved_mib or 0

    def filled(self, sharing: str, names: Sequence[str], capacity_mib: int) -> float:
        """Share of what a card has free that the processes are expected to hold together."""
        mps, _, limits = sharing.partition("=")
        each = [float(limit) for limit in limits.split(",")] if limits else [100.0] * len(names)
        held_mib = sum(
            need(
                self._profiles[name], self._context, under_mps=mps == "mps",
                sms_taken=(1 - share) * self._gpu.sms,
            ).held_mib
            for name, share in zip(names, limit_shares(each, self._gpu.sms), strict=True)
        )  # fmt: skip
        free_mib = capacity_mib - (self._gpu.reserved_mib or 0) - MPS_SERVER_MIB * (mps == "mps")
        return held_mib / free_mib


def drawn(random: Random, lots: Lots, runs: int) -> Iterator[dict]:
    """As many plans of each capacity and mode, in random order."""
    cells = list(product(CAPACITIES_MIB, MODES))
    entries = []
    for capacity_mib, mode in cells:
        for number in range(runs // len(cells)):
            sharing, names = mix(random, lots, capacity_mib, mode)
            entries.append({
                "id": f"oom-{capacity_mib // 1000}-{mode}-{number:03}", "sharing": sharing,
                "purpose": "memory", "capacity_mib": capacity_mib, "workloads": names,
            })  # fmt: skip
    random.shuffle(entries)
    yield from entries


def drawn_alone(random: Random, lots: Lots, runs: int) -> Iterator[dict]:
    """One job each, every workload with a cache worth the name before any comes twice."""
    worth = [name for name in lots.names if _cache_mib(lots, name) > LEAST_CACHE_MIB]
    names: list[str] = []
    while len(names) < runs:
        names += random.sample(worth, min(len(worth), runs - len(names)))
    for number, name in enumerate(names):
        given_up = random.uniform(*ALONE)
        room_mib = lots.need(name).held_mib - given_up * _cache_mib(lots, name)
        yield {
            "id": f"alone-{number:03}", "sharing": "naive", "purpose": "memory",
            "capacity_mib": round(room_mib) + lots.reserved_mib, "workloads": [name],
        }  # fmt: skip


def _cache_mib(lots: Lots, name: str) -> float:
    found = lots.need(name)
    return found.held_mib - found.least_mib


def mix(random: Random, lots: Lots, capacity_mib: int, mode: str) -> Draw:
    """Workloads that fill as much of the card as a draw says, and how they share it."""
    while True:
        degree = random.choice(DEGREES)
        wanted = random.triangular(LEAST, MOST, USUAL)
        for _ in range(TRIES):
            sharing, names = one(random, lots, degree, mode)
            if abs(lots.filled(sharing, names, capacity_mib) - wanted) < TOLERANCE:
                return sharing, names


def one(random: Random, lots: Lots, degree: int, mode: str) -> Draw:
    """Any workloads, some of them copies; and their sharing."""
    kinds = random.choices(lots.names, lots.weights, k=random.randint(1, degree))
    names = (kinds + random.choices(kinds, k=degree))[:degree]
    if mode != "limits":
        return mode, names
    return "mps=" + ",".join(str(random.choice(LIMITS)) for _ in names), names


if __name__ == "__main__":
    main()
