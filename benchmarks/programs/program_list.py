"""Reads the list of programs, and draws programs, workloads of the zoo and mixes by a seed."""

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIST = HERE / "programs.toml"
SEED = 20261127
PER_KIND, WORKLOADS, MIXES = 2, 12, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A public training program, as programs.toml describes it.

    Attributes:
        begins: Units that it counts before it trains, e.g. steps of a random policy.
    """

    name: str
    kind: str
    repository: str
    commit: str
    folder: str
    command: str
    pace: str
    steps: float = 1.0
    begins: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    data: Sequence[Mapping[str, Any]] = ()
    prepare: str | None = None
    install: bool = False
    unusable: str | None = None

    def printed_steps(self, line: str, lines: int) -> float | None:
        """Return the optimizer steps that `line` reports; None if it reports no pace.

        `lines` of this kind came before. The count may begin again with each epoch.
        """
        match = re.search(self.pace, line)
        if match is None:
            return None
        units = int(match[1]) if match.re.groups else lines + 1
        return None if units < self.begins else units * self.steps


def read_programs(path: Path = LIST) -> dict[str, Program]:
    """Return the listed programs by name."""
    listed = [Program(**words) for words in tomllib.loads(path.read_text())["program"]]
    return {program.name: program for program in listed}


def zoo_program(workload: str) -> Program:
    """Return the program that trains a workload of the zoo."""
    return Program(
        name=workload,
        kind="zoo",
        repository="",
        commit="",
        folder=".",
        pace=r"^step (\d+), ",
        command=f"python -m advisor.zoo {workload}",
    )


def draw_programs(listed: Mapping[str, Program]) -> list[Program]:
    """Draw two programs of each kind; the next of its kind takes an unusable one's place."""
    shuffled = list(listed.values())
    random.Random(SEED).shuffle(shuffled)  # a draw, no secret
    usable = [program for program in shuffled if program.unusable is None]
    kinds = sorted({program.kind for program in usable})
    by_kind = ([program for program in usable if program.kind == kind] for kind in kinds)
    return list(chain.from_iterable(programs[:PER_KIND] for programs in by_kind))


def draw_workloads() -> list[Program]:
    """Draw workloads of the zoo among those of which any eight may meet on a GPU."""
    small = tomllib.loads((HERE.parent / "workloads.toml").read_text())["small"]
    return [zoo_program(name) for name in random.Random(SEED).sample(sorted(small), WORKLOADS)]


def draw_mixes(names: Sequence[str], count: int = MIXES, largest: int = 5) -> list[tuple[str, ...]]:
    """Draw mixes of 2 to `largest` of the names, in turn; each name about equally often."""
    drawn, rest, mixes = random.Random(SEED), list[str](), []
    for number in range(count):
        size = 2 + number % min(largest - 1, len(names) - 1)
        if len(rest) < size:
            others = sorted(set(names).difference(rest))
            rest += drawn.sample(others, len(others))
        mixes.append(tuple(rest[:size]))
        rest = rest[size:]
    return mixes
