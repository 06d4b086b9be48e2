"""The ways in which jobs share one GPU, as values, and the words that name them.

``serial``, ``naive``, ``mps``, ``mps=43,57`` (limits in per cent, a job each) and
``mig=3g.71gb,4g.71gb@0`` (an instance a job, ``@start`` in memory slices where it matters).
"""

import re
from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Serial:
    """One job after another, each with the whole GPU."""

    def __str__(self) -> str:
        return "serial"


@dataclass(frozen=True, slots=True)
class Naive:
    """Processes take turns on the whole GPU, as the driver time-slices them."""

    def __str__(self) -> str:
        return "naive"


@dataclass(frozen=True, slots=True)
class Mps:
    """Processes run side by side under NVIDIA's Multi-Process Service.

    Attributes:
        limits: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`` of each job, in per cent, shape (jobs,);
            empty where no job has one. A cap, not a reservation: the sum may exceed 100.
    """

    limits: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.limits if not 0 < limit <= 100]:
            raise InvalidInput(f"an MPS limit is a per cent in (0, 100], got {wrong[0]:g}")

    def __str__(self) -> str:
        return "mps" + ("=" + ",".join(f"{limit:g}" for limit in self.limits)) * bool(self.limits)


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG GPU instance: its profile, e.g. ``"3g.71gb"``, and its first memory slice."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


@dataclass(frozen=True, slots=True)
class Mig:
    """Each job alone on a MIG instance of its own, in the jobs' order."""

    instances: tuple[Instance, ...]

    def __str__(self) -> str:
        return "mig=" + ",".join(map(str, self.instances))


Sharing = Serial | Naive | Mps | Mig

_PLAIN: dict[str, Sharing] = {"serial": Serial(), "naive": Naive(), "mps": Mps()}
_LIMIT = re.compile(r"\d{1,3}(\.\d+)?")
_INSTANCE = re.compile(r"(?P<profile>\d+g\.\d+gb(?:\+[a-z.]+)?)(?:@(?P<start>\d+))?")


def parse_sharing(text: str) -> Sharing:
    """The sharing that `text` names.

    Raises:
        InvalidInput: `text` is none of the forms in this module's first lines.
    """
    if plain := _PLAIN.get(text):
        return plain
    mode, _, rest = text.partition("=")
    parts = rest.split(",")
    if mode == "mps" and all(map(_LIMIT.fullmatch, parts)):
        return Mps(tuple(map(float, parts)))
    matches = [_INSTANCE.fullmatch(part) for part in parts]
    if mode == "mig" and all(matches):
        return Mig(tuple(_instance(match) for match in matches if match))
    raise InvalidInput(
        f"{text!r} is no sharing. Use serial, naive, mps, mps=43,57 (limits in per cent, one a "
        f"job) or mig=3g.71gb,4g.71gb (an instance a job, with @start where it matters)"
    )


def _instance(match: re.Match[str]) -> Instance:
    start = match["start"]
    return Instance(match["profile"], None if start is None else int(start))
