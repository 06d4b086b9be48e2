"""A job to run: how much of a profiled workload, by when, and how far others may slow it.

Reads jobs from words of a command line and job files (TOML).
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from math import inf, isfinite
from numbers import Real
from pathlib import Path
from types import NoneType
from typing import Annotated, Any

from advisor.errors import InvalidInput, near_names
from advisor.files.reading import MOST_TOML_BYTES, is_file, located, parse_toml, read_bytes, shown
from advisor.files.records import OrText, check_record, expecting
from advisor.files.units import (
    LEAST_EPOCHS,
    LEAST_STEP_S,
    MOST_EPOCH_S,
    MOST_EPOCHS,
    MOST_WAIT_S,
    check_number,
    seconds,
    share,
)
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.spec import Script, batch_name, is_name

# Owners: they become part of sentences, which the page shows as Markdown.
_USER = re.compile(r"\w[\w .:@+-]*")

# Kind of each field but the profile, and that in words.
_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("epochs", "validation_s", "checkpoint_s", "start_s"), (Real, "a number")),
    **dict.fromkeys(("deadline_s", "protect"), ((Real, NoneType), "a number")),
    **dict.fromkeys(("data_parallel", "isolated"), (bool, "True or False")),
    "user": ((str, NoneType), "a name"),
    "gpus": (int, "a whole number"),
}

MOST_HOST_GPUS = 16
"""GPUs of one host at most, as of the largest servers."""

# Least and most of each number.
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("validation_s", "checkpoint_s", "start_s"), (0.0, MOST_EPOCH_S)),
    "epochs": (LEAST_EPOCHS, MOST_EPOCHS),
    "deadline_s": (LEAST_STEP_S, MOST_WAIT_S),
    "gpus": (1, MOST_HOST_GPUS),
}

# A step that may take six times as long is not protected: larger shares were meant in per cent.
_MOST_LONGER = 5.0


def check_protection(what: str, share: float) -> None:
    """Check the `share` by which a step may take longer; messages call it `what`."""
    if isfinite(share) and 0 <= share < _MOST_LONGER:
        return
    meant = f": {share:g} % is {share / 100:g}" if _MOST_LONGER <= share < float("inf") else ""
    raise InvalidInput(
        f"expected {what} as a share of at least 0 and below {_MOST_LONGER:g}, e.g. 0.1 for steps "
        f"up to 10 % longer; got {share:g}{meant}"
    )


@dataclass(frozen=True)
class Job:
    """A profiled workload, how much of it is to run, and its constraints.

    Attributes:
        profile: Its measurements alone; `Advisor.find_profile` returns one by name.
        epochs: Number of passes over the data.
        validation_s: Of validation after each epoch, alone; not part of an epoch's time.
        checkpoint_s: Of writing checkpoints in each epoch, alone; not part of its time.
        user: Name of its owner; None: all jobs without a name have one owner.
        data_parallel: Whether it exchanges gradients with other GPUs.
        isolated: Whether no other job may share its memory and its faults.
        deadline_s: From the start of all jobs until it should end; None: no deadline.
        protect: Largest share by which its steps may get longer than alone, 0 to 5; None: any.
        gpus: GPUs of one host that it takes at once, with nothing else on them. Its examples are
            split among them; the exchange of gradients is assumed to take no time.
        start_s: From the start of its process to its first step, alone.
    """

    profile: Profile
    epochs: float = 1.0
    validation_s: float = 0.0
    checkpoint_s: float = 0.0
    user: str | None = None
    data_parallel: bool = False
    isolated: bool = False
    deadline_s: float | None = None
    protect: float | None = None
    gpus: int = 1
    start_s: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.profile, Profile):
            raise InvalidInput(
                f"Job takes a Profile: Advisor.find_profile({self.profile!r:.60}) finds it"
            )
        for field, (kinds, words) in _KINDS.items():
            if not isinstance(value := getattr(self, field), kinds):
                raise InvalidInput(f"{self.name}: {field} is {words}, got {value!r:.60}")
        for field, (least, most) in _BOUNDS.items():
            if (value := getattr(self, field)) is not None:
                check_number(f"{self.name}: {field}", value, most, least)
        if self.user is not None and not _USER.fullmatch(self.user):
            raise InvalidInput(
                f"{self.name}: expected a user of letters, digits, spaces and .:_@+-, got "
                f"{self.user!r}. Leave it out if there is none"
            )
        if self.protect is not None:
            check_protection(f"{self.name}: protect", self.protect)

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def batch(self) -> int:
        return self.profile.workload.batch

    @cached_property
    def work_steps(self) -> float | None:
        """All work of the job in training steps on each GPU; None: a pass's length is unknown.

        Start, validation and checkpoints are assumed to slow down with other jobs as training steps
        do.
        """
        steps = self.profile.workload.steps_per_epoch
        if steps is None:
            return None
        paused = sum(self.pauses_s) / self.alone_step_s
        return self.epochs * (steps + paused) / self.gpus + self.start_s / self.alone_step_s

    @property
    def pauses_s(self) -> tuple[float, float]:
        """Seconds of validation and of checkpoints in an epoch, beyond those in its epoch ends."""
        end, steps = self.profile.epoch_end, self.profile.workload.steps_per_epoch
        if end is None or steps is None:
            return self.validation_s, self.checkpoint_s
        ends = steps / (end.steps or steps)
        return (
            max(0.0, self.validation_s - ends * end.validation_s),
            max(0.0, self.checkpoint_s - ends * end.checkpoint_s),
        )

    @cached_property
    def alone_step_s(self) -> float:
        """Seconds for each of `work_steps` as measured alone, epoch ends included."""
        return self.profile.paced_s(self.profile.step_s)

    @cached_property
    def alone_s(self) -> float | None:
        """Seconds of all work as it was measured alone; None if its length is unknown."""
        return None if self.work_steps is None else self.work_steps * self.alone_step_s


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, and how many seconds after the start it arrives."""

    job: Job
    arrival_s: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.job, Job) or not isinstance(self.arrival_s, Real):
            raise InvalidInput(
                f"Arrival takes a Job and a number of seconds, got {type(self.job).__name__} and "
                f"{self.arrival_s!r:.60}"
            )
        check_number(f"{self.job.name}: arrival_s", self.arrival_s, inf)
        if self.arrival_s > MOST_WAIT_S:
            raise InvalidInput(
                f"{self.job.name}: arrival_s counts seconds from the first job on, at most "
                f"{MOST_WAIT_S:,.0f}, got {self.arrival_s:.12g}. Subtract the time of the first "
                "job, and convert to seconds"
            )


# MPS serves 48 clients up to CUDA 13.0; more jobs are of no use on one GPU.
MAX_JOBS = 48
# Most jobs for many GPUs: a search of 1,000 takes about a minute.
_MAX_SPREAD = 1_000


def most_jobs(gpus: int) -> int:
    """Return how many jobs a question about `gpus` GPUs may name at most."""
    return MAX_JOBS if gpus == 1 else _MAX_SPREAD


def checked_copies(copies: int, where: str, gpus: int) -> int:
    """Return `copies`, checked to be a possible number of jobs for so many GPUs."""
    if copies < 1:
        raise InvalidInput(
            f"{where}: {copies} copies are not possible. Leave copies out, or use 1 to "
            f"{most_jobs(gpus)}."
        )
    if copies > most_jobs(gpus):
        raise InvalidInput(f"{where}: {copies:,} copies are {_too_many(gpus)}")
    return copies


def job_set(jobs: Sequence[Job], gpus: int = 1) -> tuple[Job, ...]:
    """Return `jobs`, checked to be a possible number for `gpus` equal GPUs."""
    if not jobs:
        raise InvalidInput("no job is given. Name at least one: `advisor profiles` lists them.")
    if len(jobs) > most_jobs(gpus):
        raise InvalidInput(f"{len(jobs)} jobs are {_too_many(gpus)}")
    if wide := next((job for job in jobs if job.gpus > gpus), None):
        raise InvalidInput(
            f"{wide.name} takes {wide.gpus} GPUs of one host. Name as many, as `advisor recommend "
            f"--gpus {wide.gpus}` does."
        )
    return tuple(jobs)


def _too_many(gpus: int) -> str:
    """Why there are too many jobs, and what to do."""
    most = most_jobs(gpus)
    where = "on one GPU: MPS serves" if gpus == 1 else f"on {gpus} GPUs: a search holds"
    on_more = f"`advisor recommend --gpus N` plans up to {_MAX_SPREAD:,}; " if gpus == 1 else ""
    return (
        f"more than the {most:,} that are planned at once {where} no more. Use 1 to {most:,}; "
        f"{on_more}`advisor simulate --trace-in FILE` takes more, which wait for their turn."
    )


_COUNT = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?")


def parse_jobs(words: Iterable[str], load: FindsProfiles, gpus: int = 1) -> tuple[Job, ...]:
    """Return the jobs that `words` name, ``NAME[:COPIES][@EPOCHS]``, copies next to each other.

    `load` finds a profile by its name or path; there are `gpus` equal GPUs.

    Raises:
        InvalidInput: A count or profile is wrong, or there are too many jobs or none.
    """
    load = cache(load)
    jobs: list[Job] = []
    for word in single_words(words):
        name, copies, epochs = split_word(word, gpus)
        jobs += [Job(load(name), epochs=epochs)] * checked_copies(copies, word, gpus)
    return job_set(jobs, gpus)


def split_word(word: str, gpus: int = 1) -> tuple[str, int, float]:
    """Return name, copies and epochs of ``NAME[:COPIES][@EPOCHS]``, for `gpus` equal GPUs.

    Raises:
        InvalidInput: There is no name, or one of the numbers is not one.
    """
    rest, epochs = _cut(word, "@")
    name, copies = _cut(rest, ":")
    if word.startswith("@") or not name or name.endswith((":", "@")):
        raise InvalidInput(f"{word!r} is not a JOB. Write NAME, NAME:COPIES or NAME@EPOCHS.")
    if epochs is not None and not _NUMBER.fullmatch(epochs):
        raise InvalidInput(
            f"{word!r}: EPOCHS is a number above 0. Write {name}@3, or {name}:2@3 for 2 copies."
        )
    if copies is not None and not _COUNT.fullmatch(copies):
        raise InvalidInput(
            f"{word!r}: COPIES is a whole number from 1 to {most_jobs(gpus)}. Write {name}:2."
        )
    return name, int(copies or 1), float(epochs or 1)


def single_words(words: Iterable[str]) -> Iterator[str]:
    """Yield each job of `words`, in which commas may separate jobs unless it is a file's path."""
    for word in words:
        separated = "," in word and not is_file(Path(word))
        yield from filter(None, map(str.strip, word.split(","))) if separated else [word]


def profile_in(word: str) -> str:
    """Return the profile's name or path in a word for `parse_jobs`."""
    return _cut(_cut(word, "@")[0], ":")[0]


def _cut(word: str, mark: str) -> tuple[str, str | None]:
    """`word` and what follows the last `mark`, if any; the path of a file has none."""
    name, marked, rest = word.rpartition(mark)
    in_path = "/" in rest or word.endswith(".json")
    return (name, rest) if marked and not in_path else (word, None)


_Seconds = Annotated[float, OrText(seconds)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One ``[[job]]`` of a job file."""

    profile: str
    copies: int = 1
    epochs: float = 1.0
    examples_per_epoch: int | None = None
    validation_s: _Seconds = 0.0
    checkpoint_s: _Seconds = 0.0
    user: str | None = None
    data_parallel: bool = False
    isolated: bool = False
    deadline_s: Annotated[float | None, OrText(seconds)] = None
    protect: Annotated[float | None, OrText(share)] = None
    gpus: int = 1
    start_s: _Seconds = 0.0
    command: Annotated[tuple[str, ...] | None, OrText(lambda text: tuple(shlex.split(text)))] = None
    folder: str | None = None
    environment: dict[str, str] | None = None


_GIVEN = tuple(each.name for each in fields(Job) if each.name != "profile")


@dataclass(frozen=True, slots=True)
class JobFile:
    """A whole job file."""

    job: tuple[_Entry, ...]


def read_jobs(path: Path, load: FindsProfiles, gpus: int = 1) -> tuple[Job, ...]:
    """Return the jobs of the TOML file `path`, as `advisor init jobs` writes one.

    A profile's path is relative to the file's folder.

    Args:
        path: The file.
        load: Function from a profile's name to the profile: `Advisor.find_profile`.
        gpus: Number of GPUs that the jobs are for.
    """
    if not is_file(path) and is_name(str(path)) and not path.suffix:
        raise InvalidInput(f"{path}: --jobs expects a TOML file. Write a JOB without --jobs.")
    where, content = shown(path), read_bytes(path, MOST_TOML_BYTES)
    return _jobs(_entries(content, where), where, path.parent, load, gpus)


def names_in_file(path: Path) -> set[str]:
    """Return the names and paths of the profiles in a TOML file of jobs.

    Raises:
        InvalidInput: The file is malformed.
    """
    names = [entry.profile for entry in _entries(read_bytes(path), shown(path))]
    return {name_from(path.parent, name) for name in names}


def handed_jobs(
    content: bytes, file: str, load: FindsProfiles
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """Return the jobs in the `content` of a TOML `file` that a user uploaded, and what is left out.

    It names profiles and no files: those of the user are not here, nor is a folder that is relative
    to the file. Errors are those of `read_jobs`.
    """

    @cache
    def named(name: str) -> Profile:
        if _is_path(name) or name.endswith(".py"):
            raise InvalidInput(f"{name}: add that profile to `profiles`, and write its name here")
        return load(name)

    entries = _entries(content, file)
    jobs = _jobs(entries, file, None, named, max(entry.gpus for entry in entries))
    return jobs, tuple(
        f"{entry.profile}: the file of the plan has no folder for the job's command, so the "
        "command is left out"
        for entry in entries
        if _runs_nowhere(entry, named(entry.profile))
    )


def _entries(content: bytes, where: str) -> tuple[_Entry, ...]:
    with expecting("a job file", content, where):
        document = parse_toml(content, where)
        if not document.get("job"):
            near = near_names("job", document, alike=0.6)[:1]
            meant = f", but one called {near[0]}" if near else ""
            remedy = "`advisor init jobs` writes a file to start from"
            raise InvalidInput(f"{where}: no [[job]] table found{meant}. {remedy}.")
        if isinstance(document["job"], dict):
            wrong = "[job] is in single brackets. Write [[job]] before each job"
            raise InvalidInput(f"{where}: {wrong}.")
        return check_record(JobFile, document, where, "Correct the file.").job


def _jobs(
    entries: Sequence[_Entry], where: str, folder: Path | None, load: FindsProfiles, gpus: int
) -> tuple[Job, ...]:
    load = cache(load)
    with located(where):
        jobs: list[Job] = []
        for entry in entries:
            name = entry.profile if folder is None else name_from(folder, entry.profile)
            given = {field: getattr(entry, field) for field in _GIVEN}
            job = Job(_adapted(load(name), entry, folder), **given)
            jobs += [job] * checked_copies(entry.copies, entry.profile, gpus)
        return job_set(jobs, gpus)


def name_from(folder: Path, name: str) -> str:
    """Return the profile's `name` in a file of `folder`, to which a path is relative."""
    return str(folder / _from_home(name)) if _is_path(name) else name


def _from_home(path: str) -> Path:
    return Path.home() / path[2:] if path.startswith("~/") else Path(path)


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(".json")


def _adapted(profile: Profile, entry: _Entry, folder: Path | None) -> Profile:
    """`profile`, with the examples per epoch and the script of the entry, if it has any."""
    workload, end = profile.workload, profile.epoch_end
    if entry.examples_per_epoch is not None:
        if end is not None and end.steps == workload.steps_per_epoch:
            end = replace(end, steps=None)  # one in each pass, however long
        workload = replace(workload, examples_per_epoch=entry.examples_per_epoch)
    if folder is not None or not _runs_nowhere(entry, profile):
        workload = replace(workload, script=_script(workload.script, entry, folder))
    return replace(profile, workload=workload, epoch_end=end)


def _runs_nowhere(entry: _Entry, profile: Profile) -> bool:
    """True if the folder of the entry's command is relative to a file that is not here."""
    if entry.folder is not None:
        return not Path(entry.folder).is_absolute()
    return entry.command is not None and profile.workload.script is None


def _script(profiled: Script | None, entry: _Entry, folder: Path | None) -> Script | None:
    """The script that starts the job of `entry`: the profiled one with the entry's changes."""
    where = entry.folder
    if folder is not None and (profiled is None or where is not None):
        where = str((folder / _from_home(where or "")).resolve())
    if profiled is not None:
        return replace(
            profiled,
            command=profiled.command if entry.command is None else entry.command,
            folder=where or profiled.folder,
            environment=profiled.environment | (entry.environment or {}),
        )
    if entry.command is not None and where is not None:
        return Script(command=entry.command, folder=where, environment=entry.environment or {})
    if entry.folder is not None or entry.environment is not None:
        raise InvalidInput(f"{entry.profile}: folder and environment need a command")
    return None


def name_at_batch(name: str, profile: Profile, batch: int) -> str:
    """Return the name of the profile `name` at another batch size."""
    parts = batch_name(name.removesuffix(".json"))
    if parts is None or parts.batch != profile.workload.batch:
        raise InvalidInput(
            f"{name}: other batch sizes are found by names that end in "
            f"-bs{profile.workload.batch} or continue with a -, as the shipped ones do. Rename "
            "the profile, or leave the batch size out."
        )
    return parts.at(batch) + (".json" if name.endswith(".json") else "")
