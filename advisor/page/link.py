"""The question on the page as parameters of its address, so that a link repeats it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite
from typing import Any, get_args
from urllib.parse import quote, unquote

from advisor.errors import AdvisorError, InvalidInput
from advisor.plan import MOST_GPUS
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.prediction.prediction import Level
from advisor.sharing import parse_sharing
from advisor.simulation import Policy
from advisor.workload.job import MAX_JOBS, Job, checked_copies, job_set, name_at_batch
from advisor.workload.profile import FindsProfiles


@dataclass(frozen=True, slots=True)
class WantedJob:
    """A row of the table of jobs on the page.

    Attributes:
        name: Name of a profile, or of a job that was handed in.
        batch: Batch size; None: the job's own.
        user: Its owner; None: the one user of all jobs that name none.
        deadline_min: Deadline in minutes; None: none.
        isolated: Whether no other job may share its memory.
    """

    name: str
    copies: int = 1
    epochs: float = 1.0
    batch: int | None = None
    user: str | None = None
    deadline_min: float | None = None
    isolated: bool = False


def wanted_job(row: Mapping[str, Any]) -> WantedJob:
    """A row of the table as a value; empty cells take the defaults of `WantedJob`.

    Raises:
        InvalidInput: A count is not a whole number.
    """
    given = {name: value for name, value in row.items() if value is not None}
    for field in given.keys() & {"copies", "batch"}:
        if given[field] != int(given[field]):
            raise InvalidInput(f"{given['name']}: {field} is a whole number, got {given[field]:g}")
        given[field] = int(given[field])
    return WantedJob(**given)


def asked_jobs(
    wanted: Iterable[WantedJob], own: Mapping[str, Job], find: FindsProfiles
) -> tuple[Job, ...]:
    """The jobs that the rows `wanted` stand for, copies next to each other.

    Args:
        wanted: As asked for.
        own: Jobs that were handed in, by the names of their rows.
        find: Finds all other profiles, and those of other batch sizes.

    Raises:
        InvalidInput: A number is impossible, a batch size cannot be estimated, or there are no jobs
            or too many.
    """
    found: list[Job] = []
    for each in wanted:
        copies = checked_copies(each.copies, each.name, 1)
        found += [_job(each, own.get(each.name) or Job(find(each.name)), find)] * copies
    return job_set(found)


def _job(asked: WantedJob, known: Job, find: FindsProfiles) -> Job:
    if asked.batch not in (None, known.batch):
        known = replace(known, profile=find(name_at_batch(known.name, known.profile, asked.batch)))
    return replace(
        known, epochs=asked.epochs, user=asked.user, isolated=asked.isolated,
        deadline_s=None if asked.deadline_min is None else 60 * asked.deadline_min,
    )  # fmt: skip


def handed_rows(jobs: Sequence[Job], file: str) -> tuple[tuple[WantedJob, Job], ...]:
    """A row for each different one of `jobs`, which were handed in with `file`."""
    file = re.sub(r"[^\w.+-]", "_", file)  # jobs' names are shown as Markdown
    equal = [(job, len(list(same))) for _, same in groupby(jobs, key=id) for job in [next(same)]]
    return tuple(
        (_row(job, 1 + others, f"{job.name} ({file}, {number})"), job)
        for number, (job, others) in enumerate(equal, 1)
    )


def _row(job: Job, copies: int, name: str) -> WantedJob:
    deadline_min = None if job.deadline_s is None else job.deadline_s / 60
    return WantedJob(name, copies, job.epochs, None, job.user, deadline_min, job.isolated)


FIELDS = {
    "deadline_s in a file of jobs": "due, min",
    "--gpus": "How many",
    "--hurt": "May get slower by, %",
    "--memory-margin": "Memory to keep free, %",
    "--now": "as the driver says",
    "--objective": "Best means",
    "--running": "Jobs that run already",
    "--running-sharing": "What runs shares the GPU",
    "--running-sharing mps": "What runs shares the GPU: mps",
    **{f"--objective {name}": f"Best means: {each.choice}" for name, each in OBJECTIVES.items()},
}
"""What the page calls what these ask for; behind a colon stands what to choose there."""

_CALLED = FIELDS | {name: each.choice for name, each in OBJECTIVES.items()}
_OPTIONS, _NAMES = (
    "|".join(sorted(words, key=len, reverse=True)) for words in (FIELDS, OBJECTIVES)
)
_OF_COMMANDS = re.compile(
    rf"(?:{_OPTIONS})(?![\w-])|(?<=anked by )(?:{_NAMES})\b|\b(?:{_NAMES})(?= needs)"
)


def on_the_page(said: str) -> str:
    """`said` with the page's words, in quotes, for options that it has too, and for objectives."""
    return _OF_COMMANDS.sub(lambda found: f"“{_CALLED[found.group()]}”", said)


_MOST_WATTS, _MOST_HURT, _MOST_EUR = 1e6, 1e3, 1e6
# What is shown of a link that anybody may have written; nothing in it is markup in code quotes.
_PLAIN = "/ (),+"
_NAME = re.compile(r"[^`\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedQuestion:
    """What a link asks; None or empty where it leaves the choice to the page.

    Attributes:
        cap_w: Power cap, watts.
        plan: Name of the plan that is shown, as of `plan_name`; None: the best.
        trials: Job of whose copies trials are asked for.
        files: Names of files that were handed in; links do not contain them.
        question: Title of the further question that is open; None: the first.
        gpus: Number of equal GPUs.
        policy: Policy of the queue of these GPUs; None: a plan is searched.
        view: Title of the view of the plan that is open; None: the first.
        beside: Name of the plan to compare with; None: the best of the others.
        form: Format in which the plan is exported; None: the first.
        running: Row numbers, from 1, of the jobs that run already.
        running_sharing: How the running jobs share the GPU.
        hurt: Largest share by which a step of a running job may get longer.
        added: Names of the shown set of jobs to add.
        sharing: How each GPU that the queue feeds is shared.
        at_once: Most jobs at once on each of these GPUs.
        price: EUR for an hour of one of these GPUs.
    """

    gpu: str | None = None
    objective: str | None = None
    jobs: tuple[WantedJob, ...] = ()
    cap_w: float | None = None
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"
    plan: str | None = None
    trials: str | None = None
    files: tuple[str, ...] = ()
    question: str | None = None
    gpus: int | None = None
    policy: Policy | None = None
    view: str | None = None
    beside: str | None = None
    form: str | None = None
    running: tuple[int, ...] = ()
    running_sharing: str | None = None
    hurt: float | None = None
    added: str | None = None
    sharing: str | None = None
    at_once: int | None = None
    price: float | None = None


def parameters(asked: LinkedQuestion) -> dict[str, str | list[str]]:
    """`asked` as parameters; each job is ``NAME:COPIES:EPOCHS``, then what else is said of it.

    These are any of ``:batch=N``, ``:user=NAME``, ``:due=MINUTES`` and ``:isolated``. Conditions
    have the names of the options of ``advisor recommend``; defaults are left out.
    """
    found: dict[str, str | list[str]] = {"job": [_written(each) for each in asked.jobs]}
    under = asked.conditions
    given = {
        "gpu": asked.gpu,
        "objective": asked.objective,
        "power-cap": _AUTO if under.power_caps else asked.cap_w and f"{asked.cap_w:.12g}",
        "memory-margin": under.memory_margin and f"{under.memory_margin:.12g}",
        "root": None if under.root else _NO,
        "pessimistic": _YES if asked.level == "p95" else None,
        "plan": asked.plan,
        "file": list(asked.files),
    }
    return found | {name: value for name, value in (given | _looked_at(asked)).items() if value}


def _looked_at(asked: LinkedQuestion) -> dict[str, str | None]:
    """Parameters of the open view and the open further question."""
    return {
        "view": asked.view,
        "beside": asked.beside,
        "form": asked.form,
        "question": asked.question,
        "trials": asked.trials,
        "running": ",".join(map(str, asked.running)),
        "running-sharing": _sharing(asked.running_sharing),
        "hurt": _written_number(asked.hurt),
        "added": asked.added,
        "gpus": _written_number(asked.gpus),
        "policy": asked.policy,
        "sharing": _sharing(asked.sharing),
        "at-once": _written_number(asked.at_once),
        "price": _written_number(asked.price),
    }


_AUTO, _NO, _YES = "auto", "no", "yes"


def linked_question(found: Mapping[str, Sequence[str]]) -> LinkedQuestion:
    """The question of the parameters `found`; values that make no sense are ignored."""
    first = {name: values[0] for name, values in found.items() if values}
    jobs = [_read(text) for text in found.get("job", ())[:MAX_JOBS]]
    cap = first.get("power-cap", "")
    return LinkedQuestion(
        gpu=first.get("gpu"),
        objective=first.get("objective"),
        jobs=tuple(each for each in jobs if each is not None),
        cap_w=_number(cap, lambda watts: 0 < watts <= _MOST_WATTS),
        conditions=Conditions(
            root=first.get("root") != _NO,
            memory_margin=_number(first.get("memory-margin", ""), lambda each: 0 <= each < 1) or 0,
            power_caps=cap == _AUTO,
        ),
        level="p95" if first.get("pessimistic") == _YES else "p50",
        plan=first.get("plan"),
        files=tuple(filter(_NAME.fullmatch, found.get("file", ())[:MAX_JOBS])),
        **_linked_view({name: text for name, text in first.items() if _NAME.fullmatch(text)}),
    )


def _written_number(number: float | None) -> str | None:
    return None if number is None else f"{number:.12g}"


def _linked_view(first: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `LinkedQuestion` that `_looked_at` writes."""
    words = {name: first.get(name) for name in ("view", "beside", "form", "question", "trials")}
    places = [_whole(each, MAX_JOBS) for each in first.get("running", "").split(",")]
    return words | {
        "running": tuple(each for each in places if each is not None),
        "running_sharing": _sharing(first.get("running-sharing")),
        "hurt": _number(first.get("hurt", ""), lambda each: 0 <= each <= _MOST_HURT),
        "added": first.get("added"),
        "gpus": _whole(first.get("gpus", ""), MOST_GPUS),
        "policy": next((each for each in get_args(Policy) if each == first.get("policy")), None),
        "sharing": _sharing(first.get("sharing")),
        "at_once": _whole(first.get("at-once", ""), MAX_JOBS),
        "price": _number(first.get("price", ""), lambda each: 0 <= each <= _MOST_EUR),
    }


def _sharing(text: str | None) -> str | None:
    """`text` if it is the notation of a sharing, else None."""
    with suppress(AdvisorError):
        return text and str(parse_sharing(text)) and text
    return None


def _whole(text: str, most: int) -> int | None:
    """`text` as a whole number from 1 to `most`; None if it is none."""
    number = _number(text, lambda each: each in range(1, most + 1))
    return None if number is None else int(number)


def _number(text: str, possible: Callable[[float], bool]) -> float | None:
    """`text` as a number that is `possible`; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if possible(number) else None


def _written(job: WantedJob) -> str:
    words = [quote(job.name, safe=_PLAIN), str(job.copies), f"{job.epochs:g}"]
    if job.batch is not None:
        words.append(f"batch={job.batch}")
    if job.user is not None:
        words.append(f"user={quote(job.user, safe='')}")
    if job.deadline_min is not None:
        words.append(f"due={job.deadline_min:g}")
    return ":".join([*words, "isolated"] if job.isolated else words)


def _read(text: str) -> WantedJob | None:
    name, *words = map(unquote, text.split(":"))
    said = dict(each.partition("=")[::2] for each in words[2:])
    if not _NAME.fullmatch(name) or said.keys() - {"batch", "user", "due", "isolated"}:
        return None
    numbers = [*words[:2], *("1", "1")[len(words) :], said.get("batch", "1"), said.get("due", "1")]
    copies, epochs, batch, due = (_number(each, _positive) for each in numbers)
    if copies is None or epochs is None or batch is None or due is None:
        return None
    if not 1 <= copies <= MAX_JOBS or not 0.1 <= epochs <= 1e6 or copies % 1 or batch % 1:
        return None
    return WantedJob(
        name, int(copies), epochs, int(batch) if "batch" in said else None,
        said.get("user"), due if "due" in said else None,
        isolated="isolated" in said,
    )  # fmt: skip


def _positive(number: float) -> bool:
    return isfinite(number) and number > 0
