"""The question on the page: the line of GPU, goal and conditions, and the table of jobs.

Streamlit keeps the fields in the page's address: their keys are the parameters of a link.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import isfinite
from string import punctuation
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import gpu_meant, known_gpus
from advisor.hardware.live_gpu import as_offered_here, first_gpu
from advisor.measure.device import present_machine
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.schedule import why_no_caps
from advisor.plan.values import Recommendation
from advisor.prediction.find_profile import names_of_jobs, profile_of_file
from advisor.prediction.prediction import Level
from advisor.workload.job import Job, checked_copies, handed_jobs, job_set, name_at_batch
from advisor.workload.profile import Profile
from advisor.workload.store import profiled_gpus

_LITERAL = str.maketrans({mark: f"\\{mark}" for mark in punctuation})
# The page makes links of URLs, "www." and addresses, unless an invisible word joiner is in them.
_STARTS_OF_LINKS = {
    ":\\/": ":\u2060\\/",
    "w\\.": "w\u2060\\.",
    "W\\.": "W\u2060\\.",
    "\\@": "\u2060\\@",
}


def plain(text: str) -> str:
    """Return `text` so that Markdown shows it as it is: names come from files and links."""
    literal = text.translate(_LITERAL)
    for start, broken in _STARTS_OF_LINKS.items():
        literal = literal.replace(start, broken)
    return literal


@dataclass(frozen=True, slots=True)
class Question:
    """The question on the page.

    Attributes:
        jobs: The jobs of the table; some may take several GPUs, of which an answer for one GPU
            takes one.
    """

    gpu: str
    objective: ObjectiveName
    jobs: tuple[Job, ...]
    cap_w: float | None = None
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    @property
    def advisor(self) -> Advisor:
        return advisor_of(self.gpu, self.cap_w)

    @property
    def names(self) -> list[str]:
        """The names of the jobs, in the order that fixes their colours."""
        return [job.name for job in self.jobs]

    def answer(self, gpus: int = 1) -> Recommendation:
        """Rank the plans for so many GPUs; the advisor remembers its last answers."""
        jobs = [replace(job, gpus=min(job.gpus, gpus)) for job in self.jobs]
        return self.advisor.recommend(
            jobs, self.objective, gpus=gpus, conditions=self.conditions, level=self.level
        )


@st.cache_resource(ttl=300, max_entries=8, show_spinner=False)
def advisor_of(gpu: str, cap_w: float | None) -> Advisor:
    """Return the advisor of a GPU; those under all caps share remembered predictions."""
    if cap_w is not None:
        return advisor_of(gpu, None).under(cap_w)
    mig = as_offered_here(gpu_meant(gpu))[0].mig
    return Advisor(gpu, present=present_machine(gpu), mig=mig)


def read_question(top: DeltaGenerator, left: DeltaGenerator) -> Question | None:
    """Show the fields in `top` and the jobs on the `left`; None if one is wrong or missing.

    A sentence at the field says what is wrong with it.
    """
    measured = known_gpus().keys() & profiled_gpus()
    if not measured:
        top.info("There is no profile yet. On a machine with a GPU, run advisor profile WORKLOAD.")
        return None
    fields = top.container(horizontal=True, vertical_alignment="bottom")
    wrong = top.container(horizontal=True)
    with fields:
        here, goals = first_gpu(), {each.choice: each.name for each in OBJECTIVES.values()}
        first = DEFAULT_GPU if here is None else here
        gpus = sorted(known_gpus(), key=lambda key: (key != first, key not in measured))
        gpu, goal = _choice("GPU", "gpu", gpus, wrong), _choice("Goal", "goal", [*goals], wrong)
        objective = None if goal is None else goals[goal]
        terms = None if gpu is None else _conditions(gpu, objective or "makespan", wrong)
        link = st.popover("Copy link", icon=":material/link:")
    jobs = None
    with left:
        try:
            jobs = _jobs(gpu or DEFAULT_GPU, objective)
        except AdvisorError as error:
            st.error(plain(str(error)))
    with link:
        values = [(key, value) for key in st.query_params for value in st.query_params.get_all(key)]
        address = f"{st.context.url or ''}{'?' if values else ''}{urlencode(values)}"
        st.code(address, language=None, wrap_lines=True)
    if gpu is None or objective is None or terms is None or not jobs:
        return None
    return Question(gpu, objective, jobs, *terms)


def _misread(key: str, fits: Callable[[str], bool]) -> str | None:
    """The value of the link's parameter `key` that does not fit, until a user changes the field."""
    value, kept = st.query_params.get(key), f"{key} of the link"
    if kept not in st.session_state:  # streamlit drops it from the address then
        st.session_state[kept] = None if value is None or fits(value) else value
    wrong: str | None = st.session_state[kept]
    return wrong


def _bound(key: str) -> dict[str, Any]:
    """The arguments of a field that is the parameter `key` of a link."""
    forget = {f"{key} of the link": None}
    return {
        "key": key,
        "bind": "query-params",
        "on_change": st.session_state.update,
        "args": (forget,),
    }


def _choice(label: str, key: str, choices: Sequence[str], wrong: DeltaGenerator) -> str | None:
    """The choice of a list; None if that of a link is not in it, which a sentence says."""
    misread = _misread(key, choices.__contains__)
    chosen = st.selectbox(
        label, choices, None if misread else 0, width=220, placeholder="Choose one", **_bound(key)
    )
    if chosen is None:
        wrong.error(f"{key}: {plain(repr(misread))} is not in the list. Choose one.", width=456)
    return chosen


_MOST_W, _MOST_FREE = 10_000.0, 99.0


def _fits(key: str, text: str) -> bool:
    """Return whether a link may give the condition `key` this value."""
    if key not in ("free", "cap"):
        return text in ("true", "false")
    least, most = (0.0, _MOST_FREE) if key == "free" else (1.0, _MOST_W)
    with suppress(ValueError):
        return least <= float(text) <= most
    return False


def _conditions(
    gpu: str, objective: ObjectiveName, wrong: DeltaGenerator
) -> tuple[float | None, Conditions, Level] | None:
    """Power cap, conditions and level of the ranking; None if one of them is impossible."""
    for key in ("root", "shared", "caps", "upper", "free", "cap"):
        if misread := _misread(key, partial(_fits, key)):
            wrong.error(f"{key}: {plain(repr(misread))} does not fit. Set it in Conditions.")
    with st.popover("Conditions"):
        root = st.checkbox("MIG and power caps may be set, as root", True, **_bound("root"))
        shared = st.checkbox("Jobs may share a MIG instance", **_bound("shared"))
        free = st.number_input(
            "Memory to keep free, %", 0.0, _MOST_FREE, 0.0, format="%g", **_bound("free")
        )
        cap_w = st.number_input(
            "Power cap, W",
            1.0,
            _MOST_W,
            None,
            10.0,
            format="%g",
            placeholder="the GPU's own limit",
            **_bound("cap"),
        )
        useless = why_no_caps(known_gpus()[gpu], objective, Conditions(root=root))
        caps = st.checkbox(
            "A plan may choose a power cap",
            help=useless,
            **_bound("caps"),
            disabled=useless is not None or cap_w is not None,
        )
        upper = st.checkbox("Rank by the upper ends of the intervals", **_bound("upper"))
    try:
        if cap_w is not None:
            _ = advisor_of(gpu, cap_w).predictor
    except AdvisorError as error:
        wrong.error(f"cap: {plain(str(error))}")
        return None
    choose = caps and useless is None and cap_w is None
    conditions = Conditions(
        root=root, memory_margin=free / 100, power_caps=choose, mig="any" if shared else "plain"
    )
    return cap_w, conditions, "p95" if upper else "p50"


Row = dict[str, Any]
"""The cells of a job by the names of `COLUMNS`; None or missing: empty."""

COLUMNS = ("job", "copies", "epochs", "batch", "due", "user", "alone")
_NUMBERS = ("copies", "epochs", "batch", "due")
_WHOLE = ("copies", "batch")


def row_of(job: Job, name: str, copies: int = 1) -> Row:
    """Return `copies` of a job as a row with that `name`."""
    due_min = None if job.deadline_s is None else job.deadline_s / 60
    return {
        "job": name,
        "copies": float(copies),
        "epochs": float(job.epochs),
        "batch": None,
        "due": due_min,
        "user": job.user,
        "alone": job.isolated,
    }


def rows_text(rows: Iterable[Row]) -> str:
    """Return `rows` as text, without cells that have their defaults."""
    texts = []
    for row in rows:
        copies, epochs = row.get("copies"), row.get("epochs")
        text = quote(str(row["job"]), safe=" ()")
        text += "" if copies in (None, 1) else f":{copies:.12g}"
        text += "" if epochs in (None, 1) else f"@{epochs:.12g}"
        for name in ("batch", "due"):
            text += "" if row.get(name) is None else f";{name}={row[name]:.12g}"
        text += "" if row.get("user") is None else f";user={quote(str(row['user']), safe=' ')}"
        texts.append(text + (";alone" if row.get("alone") else ""))
    return ",".join(texts)


def rows_of(text: str) -> list[Row]:
    """Return the rows in `text`: ``NAME:COPIES@EPOCHS;batch=64;due=30;user=ann;alone,NAME2``.

    Raises:
        InvalidInput: A word is not a job.
    """
    rows = []
    for word in filter(None, map(str.strip, text.split(","))):
        first, *others = word.split(";")
        job, _, epochs = first.partition("@")
        name, _, copies = job.partition(":")
        cells = dict(each.partition("=")[::2] for each in others)
        row: Row = {"job": unquote(name), "copies": copies or 1, "epochs": epochs or 1, **cells}
        try:
            row |= {column: float(row[column]) for column in _NUMBERS if column in row}
        except ValueError:
            row = {}
        numbers = [row[column] for column in _NUMBERS if column in row]
        if not row or row.keys() - {*COLUMNS} or not all(map(isfinite, numbers)):
            raise InvalidInput(f"{word!r} is not a job. Write NAME, or NAME:COPIES@EPOCHS.")
        user = unquote(row["user"]) if "user" in row else None
        rows.append(dict.fromkeys(COLUMNS) | row | {"user": user, "alone": "alone" in row})
    return rows


def jobs_of_rows(rows: Iterable[Row], find: Callable[[str], Job]) -> tuple[Job, ...]:
    """Return the jobs of `rows`, copies next to each other; `find` finds a job by its name.

    Raises:
        InvalidInput: A cell is impossible, or there are no jobs or too many.
    """
    jobs: list[Job] = []
    for row in rows:
        cells = {name: value for name, value in row.items() if value is not None}
        for column in cells.keys() & {*_WHOLE}:
            if cells[column] != int(cells[column]):
                raise InvalidInput(
                    f"{cells['job']}: {column} is a whole number, got "
                    f"{cells[column]:g}. Correct the cell."
                )
        job, due_min = find(cells["job"]), cells.get("due")
        batch = int(cells.get("batch", job.batch))
        if batch != job.batch:
            job = replace(job, profile=find(name_at_batch(job.name, job.profile, batch)).profile)
        job = replace(
            job,
            epochs=cells.get("epochs", 1.0),
            user=cells.get("user"),
            isolated=bool(cells.get("alone")),
            deadline_s=None if due_min is None else 60 * due_min,
        )
        jobs += [job] * checked_copies(int(cells.get("copies", 1)), job.name, 1)
    return job_set(jobs, max((job.gpus for job in jobs), default=1))


@st.cache_resource(max_entries=20, show_spinner=False)
def _read(
    gpu: str, files: tuple[tuple[str, bytes], ...]
) -> tuple[dict[str, Job], list[Row], list[str], list[str]]:
    """Read uploaded `files`, names and contents: jobs by row, rows, what is left out, and errors.

    The same files give the same objects, so that predictions of their jobs stay remembered.
    """
    find, model = advisor_of(gpu, None).find_profile, known_gpus()[gpu]
    jobs: dict[str, Job] = {}
    rows: list[Row] = []
    notes: list[str] = []
    errors: list[str] = []

    def find_here(name: str) -> Profile:
        return jobs[name].profile if name in jobs else find(name)

    # Profiles before the jobs that use them.
    for file, content in sorted(files, key=lambda each: each[0].endswith(".toml")):
        try:
            if not file.endswith(".toml"):
                profile = profile_of_file(content, file, model)
                jobs[profile.name] = Job(profile)
                rows.append(row_of(jobs[profile.name], profile.name))
                continue
            handed, left_out = handed_jobs(content, file, find_here)
            notes += left_out
            for number, (_, run) in enumerate(groupby(handed, key=id), start=1):
                job, *copies = run
                name = f"{job.name} ({file} {number})"
                jobs[name] = job
                rows.append(row_of(job, name, 1 + len(copies)))
        except AdvisorError as error:
            errors.append(str(error))
    return jobs, rows, notes, errors


_KINDS = dict(
    zip(
        COLUMNS,
        ("string", "Float64", "Float64", "Float64", "Float64", "string", "boolean"),
        strict=True,
    )
)
_FEW = COLUMNS[:3]
_NOT_RUN = "This page runs nothing of a job file: “Get the commands” shows its commands."
_NO_JOB = ","  # in a link; without the parameter, the examples are the jobs


def _jobs(gpu: str, objective: ObjectiveName | None) -> tuple[Job, ...]:
    """The jobs of the table, which shows and changes those of the link.

    Raises:
        AdvisorError: A cell is impossible.
    """
    st.header("Jobs")
    at, notes = st.container(), st.container()
    below = st.container(horizontal=True, vertical_alignment="center")
    deadlines = objective is not None and OBJECTIVES[objective].uses_deadlines
    linked = ";" in st.query_params.get("jobs", "")
    shown = COLUMNS if below.toggle("More columns", deadlines or linked) else _FEW
    files = st.file_uploader(
        "Add your profiles (.json) or job files (.toml)",
        ["json", "toml"],
        key="files",
        accept_multiple_files=True,
    )
    contents = tuple((file.name, file.getvalue()) for file in files)
    own, uploaded, left_out, errors = _read(gpu, contents)
    for error in errors:
        notes.error(plain(error))
    if any(file.name.endswith(".toml") for file in files):
        notes.caption(plain(" ".join([_NOT_RUN, *(f"{each}." for each in left_out)])))
    before = st.session_state.get("uploaded", ())
    st.session_state["uploaded"] = tuple(own)
    handed = [row for row in uploaded if row["job"] not in before]
    offered = tuple(dict.fromkeys([*own, *names_of_jobs(known_gpus()[gpu])]))
    find = advisor_of(gpu, None).find_profile
    examples = offered[0] if offered else ""
    with suppress(AdvisorError):  # the bundled jobs
        chosen = advisor_of(gpu, None).chosen_jobs()
        examples = rows_text(row_of(job, job.name) for job in chosen)
    with at:
        rows = _table(offered, handed, examples, shown)
    with below, st.popover("Jobs as text"):
        st.text_input(
            "NAME:COPIES@EPOCHS, ...", key="jobs", bind="query-params", placeholder=examples
        )
    if not rows:
        notes.info("Choose at least one job.")
        return ()
    jobs = jobs_of_rows(rows, lambda name: own.get(name) or Job(find(name)))
    if wide := ", ".join(dict.fromkeys(job.name for job in jobs if job.gpus > 1)):
        notes.info(f"{plain(wide)}: here on one GPU each. “More questions” plans several GPUs.")
    if deadlines and not any(job.deadline_s for job in jobs):
        notes.info("No job has a deadline. Type one, in minutes, into “due, min”.")
    return jobs


def _table(
    offered: tuple[str, ...], handed: Sequence[Row], examples: str, shown: Sequence[str]
) -> list[Row]:
    """The rows as typed. The link's jobs and the offered ones make a new table; files add rows."""
    state, text = st.session_state, st.query_params.get("jobs") or examples
    try:
        before = rows_of(text)
    except InvalidInput as error:
        st.error(f"jobs: {plain(str(error))}")
        before = []
    names = {row["job"] for row in before}
    rows = before + [row for row in handed if row["job"] not in names]
    if state.get("table for") != (rows, offered):
        state["table number"] = state.get("table number", 0) + 1
        state["table rows"] = [row for row in rows if row["job"] in offered]
    strange = [row for row in rows if row["job"] not in offered]
    if strange:
        listed = ", ".join(str(row["job"]) for row in strange)
        st.warning(f"jobs: {plain(listed)} has no profile here. Links hold no files: add it below.")
    edited = st.data_editor(
        pd.DataFrame(state["table rows"], columns=COLUMNS).astype(_KINDS),
        key=f"table {state['table number']}",
        num_rows="dynamic",
        hide_index=True,
        column_config=_columns(offered),
        column_order=shown,
        placeholder="",
    )
    records = edited.astype(object).where(edited.notna(), None).to_dict("records")
    typed = [{str(name): cell for name, cell in row.items()} for row in records if row["job"]]
    now = rows_text(typed + strange)
    if now != rows_text(before):
        state["jobs"] = "" if now == examples else now or _NO_JOB
    state["table for"] = rows_of(now), offered
    return typed


def _columns(offered: Sequence[str]) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "job": st.column_config.SelectboxColumn("job", options=offered, required=True),
        "copies": number(step=1, default=1, width=75),
        "epochs": number(default=1, width=80),
        "batch": number(step=1, help="Examples a step; empty: the batch size of the profile."),
        "due": number("due, min", help="Minutes until it should be done."),
        "user": text(help="Its owner: MPS serves one user at a time."),
        "alone": st.column_config.CheckboxColumn(help="No other job may share its memory."),
    }
