"""The question on the page as parameters of its address, so that a link repeats it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import inf
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
        due_s = None if row.deadline_min is None else 60 * row.deadline_min
        job = replace(
            job, epochs=row.epochs, user=row.user, isolated=row.isolated, deadline_s=due_s
        )
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


_LABELS = {
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


def on_the_page(text: str) -> str:
    """Return `text` with the page's labels, in quotes, for options and for objectives."""
    for option in sorted(_LABELS, key=len, reverse=True):  # longer ones contain shorter ones
        text = text.replace(option, f"“{_LABELS[option]}”")
    for name, objective in OBJECTIVES.items():
        label = f"“{objective.choice}”"
        text = text.replace(f"anked by {name}", f"anked by {label}")
        text = text.replace(f"{name} needs", f"{label} needs")
    return text


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
        policy: Policy of the queue of several GPUs; None: the best plan.
        view: Title of the view of the plan that is open; None: the first.
        beside: Name of the plan to compare with; None: the best of the others.
        form: Format of the exported plan; None: the first.
        running: Row numbers, from 1, of the jobs that run already.
        hurt: Largest share by which a step of a running job may get longer.
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
    beside: str | None = None
    form: str | None = None
    running: tuple[int, ...] = ()
    running_sharing: str | None = None
    hurt: float | None = None
    added: str | None = None
    sharing: str | None = None
    at_once: int | None = None
    price: float | None = None


def _name(text: str) -> str | None:
    return text if _NAME.fullmatch(text) else None


def _sharing(text: str) -> str | None:
    """`text` if it is the notation of a sharing, or None."""
    with suppress(AdvisorError):
        parse_sharing(text)
        return _name(text)
    return None


def _number(text: str, least: float, most: float) -> float | None:
    """`text` as a number from `least` to `most`, or None."""
    with suppress(ValueError):
        if least <= (number := float(text)) <= most:
            return number
    return None


def _whole(text: str, most: float) -> int | None:
    """`text` as a whole number from 1 to `most`, or None."""
    number = _number(text, 1, most)
    return int(number) if number and number.is_integer() else None


def _policy(text: str) -> str | None:
    return text if text in get_args(Policy) else None


_LEAST, _MOST = 1e-9, 1e6  # of numbers that have no other bounds
_READERS: dict[str, Callable[[str], str | float | None]] = {
    "gpu": str, "objective": str, "plan": str, "view": _name, "beside": _name, "form": _name,
    "question": _name, "trials": _name, "running-sharing": _sharing, "added": _name,
    "hurt": partial(_number, least=0, most=1000), "gpus": partial(_whole, most=MOST_GPUS),
    "policy": _policy, "sharing": _sharing, "at-once": partial(_whole, most=MAX_JOBS),
    "price": partial(_number, least=0, most=_MOST),
}  # fmt: skip
"""Readers of parameters that have the name and the value of a field."""


def parameters(link: LinkedQuestion) -> dict[str, str | list[str]]:
    """Return a question as parameters; each job is ``NAME:COPIES:EPOCHS``, then other fields.

    These are any of ``:batch=N``, ``:user=NAME``, ``:due=MINUTES`` and ``:isolated``. Conditions
    have the names of the options of ``advisor recommend``; defaults are left out.
    """
    under = link.conditions
    fields = {name: getattr(link, name.replace("-", "_")) for name in _READERS} | {
        "power-cap": "auto" if under.power_caps else link.cap_w or None,
        "memory-margin": under.memory_margin or None,
        "root": None if under.root else "no",
        "pessimistic": "yes" if link.level == "p95" else None,
        "running": ",".join(map(str, link.running)) or None,
    }
    lists = {"job": list(map(_written_job, link.jobs)), "file": list(link.files)}
    return {name: texts for name, texts in lists.items() if texts} | {
        name: value if isinstance(value, str) else f"{value:.12g}"
        for name, value in fields.items()
        if value is not None
    }


def linked_question(values: Mapping[str, Sequence[str]]) -> LinkedQuestion:
    """Return the question of the parameters `values`; senseless values are ignored."""
    first = {name: texts[0] for name, texts in values.items() if texts}
    fields: dict[str, Any] = {
        name.replace("-", "_"): read(first[name])
        for name, read in _READERS.items()
        if name in first
    }
    cap, margin = first.get("power-cap", ""), first.get("memory-margin", "")
    places = (_whole(each, MAX_JOBS) for each in first.get("running", "").split(","))
    return LinkedQuestion(
        **fields,
        jobs=tuple(filter(None, map(_read_job, values.get("job", ())[:MAX_JOBS]))),
        cap_w=_number(cap, _LEAST, _MOST),
        conditions=Conditions(
            root=first.get("root") != "no",
            memory_margin=_number(margin, 0, 1 - _LEAST) or 0,
            power_caps=cap == "auto",
        ),
        level="p95" if first.get("pessimistic") == "yes" else "p50",
        files=tuple(filter(_name, values.get("file", ())[:MAX_JOBS])),
        running=tuple(filter(None, places)),
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


def _written_job(job: WantedJob) -> str:
    words = [quote(job.name, safe=_PLAIN), str(job.copies), f"{job.epochs:g}"]
    if job.batch is not None:
        words.append(f"batch={job.batch}")
    if job.user is not None:
        words.append(f"user={quote(job.user, safe='')}")
    if job.deadline_min is not None:
        words.append(f"due={job.deadline_min:g}")
    return ":".join([*words, "isolated"] if job.isolated else words)


def _read_job(text: str) -> WantedJob | None:
    name, *words = map(unquote, text.split(":"))
    fields = dict(each.partition("=")[::2] for each in words[2:])
    if not _NAME.fullmatch(name) or fields.keys() - {"batch", "user", "due", "isolated"}:
        return None
    copies, epochs = [*words, "1", "1"][:2]
    number, amount = _whole(copies, MAX_JOBS), _number(epochs, 0.1, _MOST)
    batch, due = _whole(fields.get("batch", "1"), inf), _number(fields.get("due", "1"), _LEAST, 1e9)
    if number is None or amount is None or batch is None or due is None:
        return None
    return WantedJob(
        name, number, amount, batch if "batch" in fields else None, fields.get("user"),
        due if "due" in fields else None, isolated="isolated" in fields,
    )  # fmt: skip
