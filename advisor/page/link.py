"""The question on the page as parameters of its address, so that a link repeats it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite
from typing import Any, get_args
from urllib.parse import quote, unquote

import streamlit as st

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
        name: Name of a profile, or of an uploaded job.
        batch: Batch size; None: the job's own.
        user: Its owner; None: the user of all jobs without an owner.
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
    """Return a row of the table as a value; empty cells have the defaults of `WantedJob`.

    Raises:
        InvalidInput: A count is not a whole number.
    """
    cells = {name: value for name, value in row.items() if value is not None}
    for field in cells.keys() & {"copies", "batch"}:
        if cells[field] != int(cells[field]):
            raise InvalidInput(f"{cells['name']}: {field} is a whole number, got {cells[field]:g}")
        cells[field] = int(cells[field])
    return WantedJob(**cells)


def jobs_of_rows(
    wanted: Iterable[WantedJob], own: Mapping[str, Job], find: FindsProfiles
) -> tuple[Job, ...]:
    """Return the jobs of the rows `wanted`, copies next to each other.

    Args:
        wanted: Rows of the table.
        own: Uploaded jobs, by the names of their rows.
        find: Finds all other profiles, and those of other batch sizes.

    Raises:
        InvalidInput: A number is impossible, a batch size cannot be estimated, or there are no jobs
            or too many.
    """
    jobs: list[Job] = []
    for row in wanted:
        job = own.get(row.name) or Job(find(row.name))
        if row.batch not in (None, job.batch):
            job = replace(job, profile=find(name_at_batch(job.name, job.profile, row.batch)))
        job = replace(
            job, epochs=row.epochs, user=row.user, isolated=row.isolated,
            deadline_s=None if row.deadline_min is None else 60 * row.deadline_min,
        )  # fmt: skip
        jobs += [job] * checked_copies(row.copies, row.name, 1)
    return job_set(jobs)


def uploaded_rows(jobs: Sequence[Job], file: str) -> tuple[tuple[WantedJob, Job], ...]:
    """Return a row for each different one of the `jobs` of an uploaded `file`."""
    file = re.sub(r"[^\w.+-]", "_", file)  # the page shows names as Markdown
    rows = []
    for number, (_, same) in enumerate(groupby(jobs, key=id), start=1):
        job, *others = same
        name = f"{job.name} ({file}, {number})"
        due_min = None if job.deadline_s is None else job.deadline_s / 60
        copies = 1 + len(others)
        row = WantedJob(name, copies, job.epochs, None, job.user, due_min, job.isolated)
        rows.append((row, job))
    return tuple(rows)


FIELDS = {
    "deadline_s in a file of jobs": "due, min",
    "--gpus": "How many",
    "--hurt": "May get slower by, %",
    "--memory-margin": "Memory to keep free, %",
    "--now": "now, on GPU",
    "--objective": "Best means",
    "--running": "Jobs that run already",
    "--running-sharing": "Running jobs share the GPU by",
    "--running-sharing mps": "Running jobs share the GPU by: mps",
    **{f"--objective {name}": f"Best means: {each.choice}" for name, each in OBJECTIVES.items()},
}
"""Labels of the page for options of the command line; after a colon, the value to choose."""

_CALLED = FIELDS | {name: each.choice for name, each in OBJECTIVES.items()}
_OPTIONS, _NAMES = (
    "|".join(sorted(words, key=len, reverse=True)) for words in (FIELDS, OBJECTIVES)
)
_OF_COMMANDS = re.compile(
    rf"(?:{_OPTIONS})(?![\w-])|(?<=anked by )(?:{_NAMES})\b|\b(?:{_NAMES})(?= needs)"
)


def on_the_page(text: str) -> str:
    """Return `text` with the page's labels, in quotes, for options and for objectives."""
    return _OF_COMMANDS.sub(lambda option: f"“{_CALLED[option[0]]}”", text)


_MOST_WATTS, _MOST_SLOWING, _MOST_EUR = 1e6, 1e3, 1e6
# The page shows parts of a link that anybody may have written: none is markup in code quotes.
_PLAIN = "/ (),+"
_NAME = re.compile(r"[^`\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedQuestion:
    """The question of a link; None or empty leaves the choice to the page.

    Attributes:
        cap_w: Power cap, watts.
        plan: Name of the plan in view, by `plan_name`; None: the best.
        trials: Job whose trials are in view.
        files: Names of uploaded files; links do not contain the files.
        question: Title of the further question that is open; None: the first.
        gpus: Number of equal GPUs.
        policy: Policy of the queue of these GPUs; None: the best plan.
        view: Title of the view of the plan that is open; None: the first.
        other: Name of the plan to compare with; None: the best of the others.
        form: Format of the exported plan; None: the first.
        running: Row numbers, from 1, of the jobs that run already.
        running_sharing: How the running jobs share the GPU.
        slowing: Largest share by which a step of a running job may get longer.
        added: Names of the shown set of jobs to add.
        sharing: How jobs of the queue share each GPU.
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
    other: str | None = None
    form: str | None = None
    running: tuple[int, ...] = ()
    running_sharing: str | None = None
    slowing: float | None = None
    added: str | None = None
    sharing: str | None = None
    at_once: int | None = None
    price: float | None = None


_AUTO, _NO, _YES = "auto", "no", "yes"


def parameters(link: LinkedQuestion) -> dict[str, str | list[str]]:
    """Return a question as parameters; each job is ``NAME:COPIES:EPOCHS``, then other fields.

    These are any of ``:batch=N``, ``:user=NAME``, ``:due=MINUTES`` and ``:isolated``. Conditions
    have the names of the options of ``advisor recommend``; defaults are left out.
    """
    under = link.conditions
    fields = {
        "gpu": link.gpu,
        "objective": link.objective,
        "power-cap": _AUTO if under.power_caps else link.cap_w and f"{link.cap_w:.12g}",
        "memory-margin": under.memory_margin and f"{under.memory_margin:.12g}",
        "root": None if under.root else _NO,
        "pessimistic": _YES if link.level == "p95" else None,
        "plan": link.plan,
        "file": list(link.files),
        "view": link.view,
        "beside": link.other,
        "form": link.form,
        "question": link.question,
        "trials": link.trials,
        "running": ",".join(map(str, link.running)),
        "running-sharing": _sharing(link.running_sharing),
        "hurt": _written_number(link.slowing),
        "added": link.added,
        "gpus": _written_number(link.gpus),
        "policy": link.policy,
        "sharing": _sharing(link.sharing),
        "at-once": _written_number(link.at_once),
        "price": _written_number(link.price),
    }
    jobs: dict[str, str | list[str]] = {"job": [_written(each) for each in link.jobs]}
    return jobs | {name: value for name, value in fields.items() if value}


def linked_question(values: Mapping[str, Sequence[str]]) -> LinkedQuestion:
    """Return the question of the parameters `values`; senseless values are ignored."""
    first = {name: texts[0] for name, texts in values.items() if texts}
    jobs = [_read(text) for text in values.get("job", ())[:MAX_JOBS]]
    cap = first.get("power-cap", "")
    text = {name: text for name, text in first.items() if _NAME.fullmatch(text)}.get
    places = [_whole(each, MAX_JOBS) for each in (text("running") or "").split(",")]
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
        files=tuple(filter(_NAME.fullmatch, values.get("file", ())[:MAX_JOBS])),
        view=text("view"),
        other=text("beside"),
        form=text("form"),
        question=text("question"),
        trials=text("trials"),
        running=tuple(each for each in places if each is not None),
        running_sharing=_sharing(text("running-sharing")),
        slowing=_number(text("hurt") or "", lambda each: 0 <= each <= _MOST_SLOWING),
        added=text("added"),
        gpus=_whole(text("gpus") or "", MOST_GPUS),
        policy=next((each for each in get_args(Policy) if each == text("policy")), None),
        sharing=_sharing(text("sharing")),
        at_once=_whole(text("at-once") or "", MAX_JOBS),
        price=_number(text("price") or "", lambda each: 0 <= each <= _MOST_EUR),
    )


def linked() -> LinkedQuestion:
    """Return the question of the link that opened the page."""
    if "linked" not in st.session_state:
        values = {name: st.query_params.get_all(name) for name in st.query_params}
        st.session_state["linked"] = linked_question(values)
    question: LinkedQuestion = st.session_state["linked"]
    return question


def at_first(choices: Sequence[str], choice: str | None) -> int:
    """Return the place of a link's `choice` among `choices`; of the first if it is not there."""
    return choices.index(choice) if choice in choices else 0


def _written_number(number: float | None) -> str | None:
    return None if number is None else f"{number:.12g}"


def _sharing(text: str | None) -> str | None:
    """`text` if it is the notation of a sharing, or None."""
    with suppress(AdvisorError):
        return text and str(parse_sharing(text)) and text
    return None


def _whole(text: str, most: int) -> int | None:
    """`text` as a whole number from 1 to `most`, or None."""
    number = _number(text, lambda each: each in range(1, most + 1))
    return None if number is None else int(number)


def _number(text: str, possible: Callable[[float], bool]) -> float | None:
    """`text` as a number that is `possible`, or None."""
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
    fields = dict(each.partition("=")[::2] for each in words[2:])
    if not _NAME.fullmatch(name) or fields.keys() - {"batch", "user", "due", "isolated"}:
        return None
    numbers = [
        *words[:2],
        *("1", "1")[len(words) :],
        fields.get("batch", "1"),
        fields.get("due", "1"),
    ]
    copies, epochs, batch, due = (
        _number(each, lambda value: isfinite(value) and value > 0) for each in numbers
    )
    if copies is None or epochs is None or batch is None or due is None:
        return None
    if not 1 <= copies <= MAX_JOBS or not 0.1 <= epochs <= 1e6 or copies % 1 or batch % 1:
        return None
    return WantedJob(
        name, int(copies), epochs, int(batch) if "batch" in fields else None,
        fields.get("user"), due if "due" in fields else None,
        isolated="isolated" in fields,
    )  # fmt: skip
