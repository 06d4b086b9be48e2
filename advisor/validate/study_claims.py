"""What published studies claim of shared A100-40GB GPUs, from `study_claims.toml` in this folder.

The file says who claims it, in our words, and what of a prediction would agree. What they measured
of jobs alone is in `study_alone.toml`, why a claim is missed in `study_causes.toml`.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import isnan
from typing import Any, Literal

Kind = Literal[
    "slowdown", "memory", "out of memory", "ordering", "utilisation", "energy", "placement"
]
Take = Literal["each", "largest", "smallest", "half the spread"]

# Units in which a tolerance is added, and does not multiply.
_ADDED = ("share", "points")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim; the file's head says what its fields mean.

    Attributes:
        low: Least value before tolerance; None: no bound.
        high: Largest value before tolerance; None: no bound.
    """

    ids: tuple[str, ...]
    kind: Kind
    says: str
    metric: str
    mixes: tuple[str, ...]
    unit: str
    tolerance: float
    low: float | None = None
    high: float | None = None
    sharings: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    against_mix: str | None = None
    caps_w: tuple[float | None, ...] = (None,)
    against_cap_w: float | None = None
    job: int = 1
    take: Take = "each"
    contested: str | None = None

    def agrees(self, values: Iterable[float]) -> bool:
        """Whether what is predicted lies between the bounds, tolerance included."""
        found = tuple(values)
        known = not any(map(isnan, found))
        return known and all(self.least <= each <= self.most for each in self.taken(found))

    def taken(self, values: Sequence[float]) -> tuple[float, ...]:
        """What of `values` the bounds hold for."""
        match self.take:
            case "each":
                return tuple(values)
            case "largest":
                return (max(values),)
            case "smallest":
                return (min(values),)
            case "half the spread":
                return ((max(values) - min(values)) / 2,)

    @property
    def least(self) -> float:
        """Least value that agrees, tolerance included."""
        return float("-inf") if self.low is None else self._moved(self.low, -self.tolerance)

    @property
    def most(self) -> float:
        """Largest value that agrees, tolerance included."""
        return float("inf") if self.high is None else self._moved(self.high, self.tolerance)

    def _moved(self, bound: float, by: float) -> float:
        return bound + by if self.unit in _ADDED else bound * (1 + by)


@dataclass(frozen=True, slots=True)
class Alone:
    """What a study measured of a job alone; the head of `study_alone.toml` says what it means."""

    ids: tuple[str, ...]
    job: str
    gract: float


@dataclass(frozen=True, slots=True)
class Claims:
    """All claims, with the words in which they ask.

    Attributes:
        workloads: Name of each short word.
        nearest: Name of a profile instead, where a workload has none.
        slices: MIG instances: of a short name, of a number of copies, and of a word in a mix.
        unchecked: Why a row is no question, by its id.
        causes: Why a claim is missed, as far as somebody found out, by the row's id.
        slower_host: How much longer host work may take on the studies' hosts.
        alone: What the studies measured of jobs alone.
        host_of: Words of the jobs that ran on the host of these.
    """

    claims: tuple[Claim, ...]
    workloads: Mapping[str, str]
    nearest: Mapping[str, str]
    slices: Mapping[str, Mapping[str, str]]
    unchecked: Mapping[str, str]
    causes: Mapping[str, str]
    slower_host: float
    alone: tuple[Alone, ...]
    host_of: tuple[str, ...]


@cache
def study_claims() -> Claims:
    """The claims that come with this package."""
    document, causes = _read("study_claims.toml"), _read("study_causes.toml")
    alone = _read("study_alone.toml")
    return Claims(
        claims=tuple(_claim(entry) for entry in document["claim"]),
        workloads=document["workloads"],
        nearest=document["nearest"],
        slices=document["slices"],
        unchecked=_by_id(document["unchecked"]),
        causes=_by_id(causes.get("cause", [])),
        slower_host=document["host"]["slower"],
        alone=tuple(
            Alone(tuple(each["ids"]), each["job"], each["gract"]) for each in alone["alone"]
        ),
        host_of=tuple(alone["host_of"]),
    )


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("advisor.validate").joinpath(name).read_text())


def _by_id(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {name: each["why"] for each in entries for name in each["ids"]}


def _claim(entry: Mapping[str, Any]) -> Claim:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return Claim(**values)
