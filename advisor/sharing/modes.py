"""The ways to share a GPU, as values, and the notation that names them.

Every way to share has a `mode`, `limits` (empty where no job on the whole GPU has one) and
`instances` (empty without MIG). Most code asks for these instead of the type. Making one that is
impossible, e.g. with a job in two places, raises InvalidInput.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

from advisor.errors import InvalidInput, counted, shortened

Mode = Literal["serial", "naive", "mps", "mps-limits", "phases", "mig", "hybrid"]
"""The name under which plans and runs are fitted, sorted and reported, simplest to set up first;
"mig": a job on each instance; "hybrid": instances that are shared or divided."""

SHARED_MODES: tuple[Mode, ...] = ("naive", "mps", "mps-limits")
"""Those in which jobs have the whole GPU at the same time."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG GPU instance: its profile, e.g. ``"3g.71gb"``, and its first memory slice."""

    profile: str
    start: int | None = None

    def __str__(self) -> str:
        return self.profile if self.start is None else f"{self.profile}@{self.start}"


_Own = TypeVar("_Own", bound="_WithoutMps")  # typing.Self is not in Python 3.10, which scripts run


class _WithoutMps:
    """Jobs that take turns on the whole GPU: one after another, or in time slices."""

    __slots__ = ()
    mode: ClassVar[Mode]
    limits: ClassVar[tuple[float, ...]] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = False
    keeps_sms_apart: ClassVar[bool] = False

    def among(self: _Own, places: Sequence[int]) -> _Own:  # noqa: ARG002 - as of `Mps`
        """Return how the jobs at `places` share while the others are not running."""
        return self

    def __str__(self) -> str:
        return self.mode


@dataclass(frozen=True, slots=True)
class Serial(_WithoutMps):
    """One job after another, each with the whole GPU."""

    mode: ClassVar[Mode] = "serial"


@dataclass(frozen=True, slots=True)
class Naive(_WithoutMps):
    """Processes take turns on the whole GPU, as the driver time-slices them."""

    mode: ClassVar[Mode] = "naive"


@dataclass(frozen=True, slots=True)
class Mps:
    """Processes run side by side under NVIDIA's Multi-Process Service.

    Attributes:
        limits: ``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`` of each job, in per cent, shape (jobs,);
            empty if no job has one. A cap, not a reservation: the sum may exceed 100.
    """

    limits: tuple[float, ...] = ()
    instances: ClassVar[tuple[Instance, ...]] = ()
    under_mps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if wrong := [limit for limit in self.limits if not 0 < limit <= 100]:
            raise InvalidInput(f"an MPS limit is a per cent in (0, 100], got {wrong[0]:g}")
        if small := [limit for limit in self.limits if limit < 1]:
            raise InvalidInput(
                f"an MPS limit is a per cent of the SMs: {small[0]:g} % is less than the two SMs "
                f"that a client gets of any GPU. Did you mean {100 * small[0]:g}?"
            )

    @property
    def mode(self) -> Mode:
        """``"mps"``; or a mode of its own with limits."""
        return "mps-limits" if self.limits else "mps"

    def among(self, places: Sequence[int]) -> "Mps":
        """Return how the jobs at `places` share while the others are not running."""
        return Mps(tuple(self.limits[at] for at in places) if self.limits else ())

    @property
    def keeps_sms_apart(self) -> bool:
        """True if limits add up to at most 100, so that no two jobs need to share an SM."""
        return 0 < sum(self.limits) <= 100

    def __str__(self) -> str:
        limits = "=" + ",".join(f"{limit:g}" for limit in self.limits) if self.limits else ""
        return f"mps{limits}"


@dataclass(frozen=True, slots=True)
class Mig:
    """Each job alone on a MIG instance of its own, in the jobs' order."""

    instances: tuple[Instance, ...]
    mode: ClassVar[Mode] = "mig"
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __str__(self) -> str:
        return "mig=" + ",".join(map(str, self.instances))


Concurrent = Naive | Mps
"""The ways to have a whole GPU, an instance, or a part of one at the same time."""

PartitionSharing = Serial | Concurrent
"""The ways to share what has SMs of its own: a whole GPU, an instance, or a part of one."""


def _check_group(jobs: tuple[int, ...], sharing: PartitionSharing) -> None:
    """Check that there are jobs, each named once, with a limit for each if there are limits."""
    if not jobs or min(jobs) < 1:
        raise InvalidInput("jobs are named by their numbers, from 1, at least one in brackets")
    _check_once(jobs)
    if sharing.limits and len(sharing.limits) != len(jobs):
        raise InvalidInput(
            f"{sharing}: {counted(len(sharing.limits), 'limit')} for {counted(len(jobs), 'job')}"
        )


def _check_once(jobs: tuple[int, ...]) -> None:
    if len(set(jobs)) < len(jobs):
        twice = min(job for job in jobs if jobs.count(job) > 1)
        raise InvalidInput(f"job {twice} is named twice; each job has one place")


@dataclass(frozen=True, slots=True)
class SharedPartition:
    """A partition, which has SMs of its own, with the numbers of its jobs, from 1.

    Attributes:
        sharing: How the jobs share it; limits are in per cent of its SMs.
        instance: Its MIG GPU instance; None: the partition is the whole GPU.
        slices: Compute slices if it is a compute instance; None: all of the GPU instance.
    """

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instance: Instance | None = None
    slices: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Jobs, by their numbers from 1, on a MIG GPU instance, or on a compute instance in it.

    Attributes:
        sharing: How the jobs share it; limits are in per cent of its SMs.
        slices: Compute slices of a compute instance; None: all of the GPU instance.
    """

    jobs: tuple[int, ...]
    sharing: Concurrent = field(default_factory=Naive)
    slices: int | None = None

    def __post_init__(self) -> None:
        if self.slices is not None and self.slices < 1:
            raise InvalidInput(f"a compute instance has at least 1 slice, got {self.slices}")
        _check_group(self.jobs, self.sharing)

    def __str__(self) -> str:
        """The notation; a single job without a limit has no sharing in it."""
        size = "" if self.slices is None else f"{self.slices}c"
        plain = len(self.jobs) == 1 and self.sharing == Naive()
        numbers = ",".join(map(str, self.jobs))
        return f"{size}[{numbers}]" + ("" if plain else f"/{self.sharing}")


@dataclass(frozen=True, slots=True)
class Place:
    """A MIG GPU instance with the jobs on it.

    Attributes:
        parts: A single part without slices: the instance is whole. Parts with slices: compute
            instances, with SMs of their own and one memory.
    """

    instance: Instance
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidInput(f"{self.instance} is cut into no compute instance")
        _check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs on it."""
        return tuple(job for part in self.parts for job in part.jobs)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """Its partitions: each part."""
        return tuple(SharedPartition(part.jobs, part.sharing, self.instance, part.slices)
                     for part in self.parts)  # fmt: skip

    def __str__(self) -> str:
        cut = "" if self.parts[0].slices is None else "/ci="
        return f"{self.instance}{cut}" + "+".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Hybrid:
    """MIG instances, each shared by jobs of its own."""

    places: tuple[Place, ...]
    mode: ClassVar[Mode] = "hybrid"
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.places:
            raise InvalidInput("a hybrid has at least one MIG instance")
        _check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs, in the order of the places."""
        return tuple(job for place in self.places for job in place.jobs)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The GPU instance of each place."""
        return tuple(place.instance for place in self.places)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """All partitions: whole GPU instances, and the parts of divided ones."""
        return tuple(part for place in self.places for part in place.partitions)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions grouped by memory: those of each GPU instance share one."""
        return tuple(place.partitions for place in self.places)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of jobs that run at the same time, one set after another: here a single one."""
        return (tuple(sorted(self.jobs)),)

    def __str__(self) -> str:
        return "mig=" + "+".join(map(str, self.places))


def one_job_each(instances: tuple[Instance, ...]) -> Hybrid:
    """`Mig` as a `Hybrid`: the first job alone on the first instance, and so on."""
    return Hybrid(
        tuple(Place(each, (Part((job,)),)) for job, each in enumerate(instances, start=1))
    )


Arrangement = PartitionSharing | Mig | Hybrid
"""A GPU that is set up once."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs, by their numbers from 1, that share the whole GPU."""

    jobs: tuple[int, ...]
    sharing: PartitionSharing
    instances: ClassVar[tuple[Instance, ...]] = ()

    def __post_init__(self) -> None:
        _check_group(self.jobs, self.sharing)

    @property
    def partitions(self) -> tuple[SharedPartition, ...]:
        """Its only partition: the whole GPU."""
        return (SharedPartition(self.jobs, self.sharing),)

    @property
    def memories(self) -> tuple[tuple[SharedPartition, ...], ...]:
        """Partitions grouped by memory; jobs one after another each have all of it."""
        return tuple((SharedPartition(jobs, self.sharing),) for jobs in self.running_together)

    @property
    def running_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of jobs that run at the same time, one set after another."""
        one_by_one = self.sharing.mode == "serial"
        return tuple((job,) for job in self.jobs) if one_by_one else (self.jobs,)

    def __str__(self) -> str:
        return f"{self.sharing}[" + ",".join(map(str, self.jobs)) + "]"


@dataclass(frozen=True, slots=True)
class Phases:
    """Groups one after another: the next starts when the last job of the one before has ended.

    A group on MIG instances is a `Hybrid`, which names its jobs itself.
    """

    groups: tuple[Group | Hybrid, ...]
    mode: ClassVar[Mode] = "phases"
    limits: ClassVar[tuple[float, ...]] = ()
    keeps_sms_apart: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            raise InvalidInput("phases are at least two groups of jobs, with a ; between them")
        _check_once(self.jobs)

    @property
    def jobs(self) -> tuple[int, ...]:
        """Numbers of all jobs, in the order of the groups."""
        return tuple(job for group in self.groups for job in group.jobs)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The GPU instances of all groups, one group after another."""
        return tuple(each for group in self.groups for each in group.instances)

    def __str__(self) -> str:
        return ";".join(map(str, self.groups))


Sharing = Arrangement | Phases

_PLAIN: dict[str, PartitionSharing] = {"serial": Serial(), "naive": Naive()}
_PROFILE = r"\d+g\.\d+gb(?:[+-][a-z.]+)?"
_JOBS = r"\[(?P<jobs>\d{1,4}(?:,\d{1,4})*)\]"
_INSTANCE = rf"(?P<profile>{_PROFILE})(?:@(?P<start>\d{{1,3}}))?"
_SETTINGS = r"(?:=[\d.,]+)?"
_SHARED = rf"{_JOBS}(?:/(?P<sharing>naive|mps{_SETTINGS}))?"

_LIMIT = r"\d{1,3}(?:\.\d+)?"
_MPS = re.compile(rf"mps(?:=(?P<limits>{_LIMIT}(?:,{_LIMIT})*))?")
_PLACED = re.compile(_INSTANCE)
_SLOT = re.compile(_INSTANCE + _SHARED)
_COMPUTE = re.compile(rf"(?:{_INSTANCE}/ci=)?(?P<slices>\d)c{_SHARED}")
_GROUP = re.compile(rf"(?P<sharing>[a-z]+{_SETTINGS}){_JOBS}")
# NVIDIA's name of naive sharing.
_TIME_SLICING = re.compile(r"\btime[-_ ]?slic(?:e[ds]?|ing)\b")
# The plus between places and parts, not that in "1g.18gb+me".
_NEXT = re.compile(r"\+(?=\d)")
# Spaces around signs, a % behind a number, and a colon or space for the = behind a mode.
_SPACE = re.compile(r"\s*([=,;+/@\[\]])\s*|(?<=\d)\s*%|(?<=^mps)[:\s]+(?=\d)|(?<=^mig)[:\s]+(?=\d)")
# A MIG profile without its memory.
_SHORT = re.compile(r"(?<![\w.])(\d+g)(?![\w.])")
_OF_AN_H200 = ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")


class _NoSharingError(Exception):
    """The words have none of the forms of a sharing."""


def parse_sharing(text: str, offered: Sequence[str] = _OF_AN_H200) -> Sharing:
    """The sharing that `text` names, in letters of any case; time slicing is naive sharing.

    Args:
        text: The notation; spaces around signs and a % behind a number are ignored.
        offered: Names of the GPU's MIG profiles, smallest first, one of which ``3g`` is.

    Raises:
        InvalidInput: `text` has none of the forms in this package's docstring.
    """
    words = _SPACE.sub(_sign, _TIME_SLICING.sub("naive", text.strip().lower()))
    if "/priority" in words:
        raise InvalidInput(
            f"{text!r}: MPS client priorities were removed; use MPS limits, such as mps=100,43"
        )

    try:
        return _parse(_SHORT.sub(lambda match: full_profile(match[0], offered), words))
    except _NoSharingError:
        raise InvalidInput(
            f"{shortened(text)} is not a sharing. {_how_to_write(words, offered)}"
        ) from None


def full_profile(word: str, offered: Sequence[str]) -> str:
    """Return the MIG profile among `offered` whose name without memory is `word`; else `word`.

    Raises:
        InvalidInput: There are several.
    """
    names = [name for name in _for_training(offered) if name.startswith(f"{word}.")]
    if len(names) > 1:
        raise InvalidInput(f"{word} may be {' or '.join(names)}. Write one of these.")
    return names[0] if names else word


def _sign(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    return "" if match[0].endswith("%") else "="


def _parse(words: str) -> Sharing:
    if ";" in words:
        return Phases(tuple(map(_group, words.split(";"))))
    if "[" in words:
        return _hybrid(words)
    matches = [_PLACED.fullmatch(part) for part in words.removeprefix("mig=").split(",")]
    if all(matches):
        return Mig(tuple(_instance(match) for match in matches if match))
    return _whole(words)


def _whole(words: str) -> PartitionSharing:
    if plain := _PLAIN.get(words):
        return plain
    if match := _MPS.fullmatch(words):
        return Mps(tuple(map(float, match["limits"].split(","))) if match["limits"] else ())
    raise _NoSharingError


def _group(words: str) -> Group | Hybrid:
    if match := _GROUP.fullmatch(words):
        return Group(_numbers(match), _whole(match["sharing"]))
    return _hybrid(words)


def _hybrid(words: str) -> Hybrid:
    places: list[Place] = []
    for word in _NEXT.split(words.removeprefix("mig=")):
        match = _SLOT.fullmatch(word) or _COMPUTE.fullmatch(word)
        if match is None:
            raise _NoSharingError
        part = _part(match)
        if match["profile"]:
            places.append(Place(_instance(match), (part,)))
        elif places and places[-1].parts[0].slices is not None:
            places[-1] = Place(places[-1].instance, (*places[-1].parts, part))
        else:
            raise _NoSharingError
    return Hybrid(tuple(places))


def _part(match: re.Match[str]) -> Part:
    sharing = _whole(match["sharing"] or "naive")
    assert not isinstance(sharing, Serial), "the expression allows no such word"
    slices = match.groupdict().get("slices")
    return Part(_numbers(match), sharing, None if slices is None else int(slices))


def _instance(match: re.Match[str]) -> Instance:
    start = match["start"]
    return Instance(match["profile"], None if start is None else int(start))


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(map(int, match["jobs"].split(",")))


def _for_training(names: Sequence[str]) -> list[str]:
    """`names` of MIG profiles without those that differ in media engines only."""
    return [name for name in names if name.endswith("gb")]


def _how_to_write(words: str, offered: Sequence[str]) -> str:
    """The remedy for `words` that name no sharing."""
    if (match := _GROUP.fullmatch(words)) is not None:
        return f"One group is all jobs: write {match['sharing']}, or naive[1,2];mps[3] for two."
    slices = {name: int(name.partition("g")[0]) for name in _for_training(offered)}
    most = max(slices.values(), default=0)
    half = next((name for name in reversed(slices) if 2 * slices[name] <= most), "")
    with_numbers = re.search(r"\w\[|;", words)
    if words.startswith("mig") or re.search(r"\dg\b", words):
        if not offered:
            return "The GPU has no MIG: write serial, naive, mps or mps=50,50."
        if with_numbers:
            cut = f"{[*slices][-1]}/ci={most - most // 2}c[1]+{most // 2}c[2]"
            return f"Write jobs by their numbers: mig={half}[1]+{half}[2,3]/mps or mig={cut}."
        return f"Write an instance for each job: mig={half},{half}; it has {', '.join(offered)}."
    if with_numbers:
        return "Write jobs by their numbers: naive[1,2];mps[3], one group after another."
    mig = f" or mig={half},{half} (an instance for each)" if half else ""
    return f"Write serial, naive, mps, mps=50,50 (per cent for each job){mig}."
